// These files write a run's report: one HTML file, made from the run directory.
//
// The file loads nothing: no script, no font, no picture, and its policy forbids them. Bars
// are SVG. Text from the job is shown without secrets (package mask), with control characters
// escaped, and as text. The file stays below MostReportBytes for every run.

package show

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"path/filepath"

	"github.com/gpurun/gpurun/launcher"

	"github.com/gpurun/gpurun/launcher/journal"
	"github.com/gpurun/gpurun/launcher/system"
)

// ReportFile is the name of the report in a run directory.
const ReportFile = "report.html"

// MostReportBytes bounds the size of a report.
const MostReportBytes = 400_000

// WriteReport writes a report with as much detail as fits.
func WriteReport(w io.Writer, d ReportData) error {
	var page bytes.Buffer
	for level := most; ; level = level.less() {
		page.Reset()
		if err := write(&page, d, level); err != nil {
			return fmt.Errorf("make the report: %w", err)
		}
		if page.Len() < MostReportBytes || level.full == 0 {
			break
		}
	}
	_, err := w.Write(page.Bytes())
	return err
}

// MakeReport writes the report of the run in dir: to a path, to out for "-", by default into the
// run directory. It returns the path, empty for out.
func MakeReport(dir, to, version string, out io.Writer) (path string, err error) {
	d, err := LoadReport(dir, version, nil)
	if err != nil {
		return "", err
	}
	if to == "-" {
		return "", WriteReport(out, d)
	}
	path = cmp.Or(to, filepath.Join(dir, ReportFile))
	return path, d.toFile(path)
}

// toFile writes the report to a path.
func (d ReportData) toFile(path string) (err error) {
	if d.From, err = linksFrom(filepath.Dir(path), d.Dir); err != nil {
		return err
	}
	var page bytes.Buffer
	if err := WriteReport(&page, d); err != nil {
		return err
	}
	if d.From == "." { // the user's own folder, also where root writes the report
		return launcher.RunDirError(d.Dir, system.WriteForOwner(path, page.Bytes()))
	}
	return launcher.RunDirError(d.Dir, system.WriteCopy(path, page.Bytes(), system.PrivateMode))
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

// ReportAtEnd returns show with the report written before it shows the end of the run: the journal
// has the verdict by then. A report that cannot be written is only a warning.
func ReportAtEnd(show func(launcher.Event), p *People, version string) func(launcher.Event) {
	return func(event launcher.Event) {
		if _, last := event.(launcher.Finished); last {
			people := *p // a copy: a disk that hangs is left behind
			err := system.InTime(func() error { return atEnd(people, version) })
			if errors.Is(err, system.ErrSlow) {
				err = fmt.Errorf("%w; gpurun report writes it", err)
			}
			if err != nil {
				p.Warn("the report was not written: %v", err)
			} else {
				p.Report = filepath.Join(p.Dir, ReportFile)
			}
		}
		show(event)
	}
}

func atEnd(p People, version string) (err error) {
	defer func() {
		if bug := recover(); bug != nil {
			err = fmt.Errorf("this is a bug in gpurun: %v", bug)
		}
	}()
	events, err := journal.Read(p.Dir)
	if err != nil {
		return err
	}
	run := journal.RunOf(events)
	if err := journal.KeepHints(p.Dir, p.Hints(run)); err != nil {
		return err
	}
	return loaded(p.Dir, run, version, p.Mask).toFile(filepath.Join(p.Dir, ReportFile))
}

// hints say what to do next: as printed at the end of the run, else by the journal.
func (d *ReportData) hints() []string {
	if hints, known := journal.ReadHints(d.Dir); known && d.Verdict != nil {
		return hints
	}
	return People{Dir: d.Dir, Mask: d.say.mask}.Hints(d.Run)
}
