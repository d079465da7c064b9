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
	"errors"
	"fmt"
	"io"
	"path/filepath"

	"github.com/gpurun/gpurun/launcher"
	"github.com/gpurun/gpurun/launcher/console"
	"github.com/gpurun/gpurun/launcher/journal"
	"github.com/gpurun/gpurun/launcher/private"
	"github.com/gpurun/gpurun/launcher/runstate"
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

// AtEnd shows events, and writes the run's report before its end is shown: the journal has
// the verdict by then. Whatever goes wrong with the report is a warning, and no more.
func AtEnd(show func(launcher.Event), p *console.People, version string) func(launcher.Event) {
	return func(event launcher.Event) {
		if _, last := event.(launcher.Finished); last {
			people := *p // who may go on before a disk that hangs does
			err := private.InTime(func() error { return atEnd(people, version) })
			if errors.Is(err, private.ErrSlow) {
				err = fmt.Errorf("%w; gpurun report writes it", err)
			}
			if err != nil {
				p.Warn("the report was not written: %v", err)
			} else {
				p.Report = filepath.Join(p.Dir, File)
			}
		}
		show(event)
	}
}

func atEnd(p console.People, version string) (err error) {
	defer func() {
		if bug := recover(); bug != nil {
			err = fmt.Errorf("this is a bug in gpurun: %v", bug)
		}
	}()
	events, err := journal.Read(p.Dir)
	if err != nil {
		return err
	}
	if err := journal.KeepHints(p.Dir, p.Hints(runstate.Of(events))); err != nil {
		return err
	}
	return loaded(p.Dir, events, version, p.Mask).toFile(filepath.Join(p.Dir, File))
}

// hints are what to do next: as the end of the run told it, else as far as the journal knows.
func (d *Data) hints() []string {
	if hints, known := journal.ReadHints(d.Dir); known && d.Verdict != nil {
		return hints
	}
	return console.People{Dir: d.Dir, Mask: d.say.mask}.Hints(d.Run)
}
