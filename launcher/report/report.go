// Package report writes a run's report: one HTML file for the morning after, made of what
// the run directory holds.
//
// The file asks nobody for anything: no script, no font, no picture, and a policy in it that
// forbids them. Charts are drawn here, as SVG. What comes from the job is shown without its
// secrets (package mask), with control characters written out (package terminal), and
// escaped. However long the run was, the file stays below MostBytes.
package report

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"path/filepath"

	"github.com/gpurun/gpurun/launcher"
	"github.com/gpurun/gpurun/launcher/private"
)

// File is the name of the report in a run directory.
const File = "report.html"

// MostBytes is more than any report has.
const MostBytes = 400_000

// Write writes a report of what Load has read, with as much detail as fits.
func Write(w io.Writer, d Data) error {
	var page bytes.Buffer
	for level := most; ; level = level.less() {
		page.Reset()
		if err := write(&page, d, level); err != nil {
			return fmt.Errorf("make the report: %w", err)
		}
		if page.Len() < MostBytes || level.full == 0 {
			break
		}
	}
	_, err := w.Write(page.Bytes())
	return err
}

// Make writes the report of the run in dir: to a path, to out for "-", by default into the
// run directory. It returns the path, empty for out.
func Make(dir, to, version string, out io.Writer) (path string, err error) {
	d, err := Load(dir, version, nil)
	if err != nil {
		return "", err
	}
	if to == "-" {
		return "", Write(out, d)
	}
	path = cmp.Or(to, filepath.Join(dir, File))
	return path, d.toFile(path)
}

// toFile writes the report to a path.
func (d Data) toFile(path string) (err error) {
	if d.From, err = linksFrom(filepath.Dir(path), d.Dir); err != nil {
		return err
	}
	var page bytes.Buffer
	if err := Write(&page, d); err != nil {
		return err
	}
	return launcher.RunDirError(d.Dir, private.WriteCopy(path, page.Bytes(), private.Mode))
}

// linksFrom is how a link in a file of one folder begins that leads into another.
func linksFrom(folder, dir string) (string, error) {
	from, err := filepath.Abs(folder)
	if err != nil {
		return "", fmt.Errorf("find %s: %w", folder, err)
	}
	to, err := filepath.Abs(dir)
	if err != nil {
		return "", fmt.Errorf("find %s: %w", dir, err)
	}
	return filepath.Rel(from, to)
}
