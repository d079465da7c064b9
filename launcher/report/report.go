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
	"github.com/gpurun/gpurun/launcher/mask"
	"github.com/gpurun/gpurun/launcher/private"
	"github.com/gpurun/gpurun/launcher/runstate"
	"github.com/gpurun/gpurun/model"
	"github.com/gpurun/gpurun/strategy"
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

// An End is what is needed to write the report of a run that ends.
type End struct {
	Dir, Version string
	Mask         *mask.Masker // knows the job's secrets
	// Propose gives the words that start a plan, for what to do next.
	Propose func(plan strategy.Plan, n int) (model.Proposal, error)
	// Typed is how gpurun was started, for the same.
	Typed []string
	// Told gets the report's path, Page the warning where there is none.
	Told func(path string)
	Page *console.Page
}

// AtEnd shows events, and writes the run's report before its end is shown: the journal has
// the verdict by then. Whatever goes wrong with the report is a warning, and no more.
func AtEnd(show func(launcher.Event), e End) func(launcher.Event) {
	return func(event launcher.Event) {
		if _, last := event.(launcher.Finished); last {
			err := private.InTime(e.write)
			if errors.Is(err, private.ErrSlow) {
				err = fmt.Errorf("%w; gpurun report writes it", err)
			}
			if err != nil {
				e.Page.Printf("gpurun: warning: the report was not written: %v\n", err)
			} else {
				e.Told(filepath.Join(e.Dir, File))
			}
		}
		show(event)
	}
}

func (e End) write() (err error) {
	defer func() {
		if bug := recover(); bug != nil {
			err = fmt.Errorf("this is a bug in gpurun: %v", bug)
		}
	}()
	events, err := journal.Read(e.Dir)
	if err != nil {
		return err
	}
	if err := journal.KeepHints(e.Dir, console.Hints(runstate.Of(events), e.Dir, e.Mask, e.Propose, e.Typed)); err != nil {
		return err
	}
	return loaded(e.Dir, events, e.Version, e.Mask).toFile(filepath.Join(e.Dir, File))
}

// hints are what to do next: as the end of the run told it, else as far as the journal knows.
func (d *Data) hints() []string {
	if hints, known := journal.ReadHints(d.Dir); known && d.Verdict != nil {
		return hints
	}
	return console.Hints(d.Run, d.Dir, d.say.mask, nil, nil)
}
