// Package report writes a run's report: one HTML file, made from the run directory.
//
// The file loads nothing: no script, no font, no picture, and its policy forbids them. Bars
// are SVG. Text from the job is shown without secrets (package mask), with control characters
// escaped (package terminal), and as text. The file stays below MostBytes for every run.
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

// MostBytes bounds the size of a report.
const MostBytes = 400_000

// Write writes a report with as much detail as fits.
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
	if d.From == "." { // the user's own folder, also where root writes the report
		return launcher.RunDirError(d.Dir, private.WriteForOwner(path, page.Bytes()))
	}
	return launcher.RunDirError(d.Dir, private.WriteCopy(path, page.Bytes(), private.Mode))
}

// linksFrom is the prefix of links from a file in one folder to files in another.
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

// AtEnd returns show with the report written before it shows the end of the run: the journal
// has the verdict by then. A report that cannot be written is only a warning.
func AtEnd(show func(launcher.Event), p *console.People, version string) func(launcher.Event) {
	return func(event launcher.Event) {
		if _, last := event.(launcher.Finished); last {
			people := *p // a copy: a disk that hangs is left behind
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
	run := runstate.Of(events)
	if err := journal.KeepHints(p.Dir, p.Hints(run)); err != nil {
		return err
	}
	return loaded(p.Dir, run, version, p.Mask).toFile(filepath.Join(p.Dir, File))
}

// hints say what to do next: as printed at the end of the run, else by the journal.
func (d *Data) hints() []string {
	if hints, known := journal.ReadHints(d.Dir); known && d.Verdict != nil {
		return hints
	}
	return console.People{Dir: d.Dir, Mask: d.say.mask}.Hints(d.Run)
}
