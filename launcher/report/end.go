package report

import (
	"fmt"
	"path/filepath"
	"time"

	"github.com/gpurun/gpurun/launcher"
	"github.com/gpurun/gpurun/launcher/console"
	"github.com/gpurun/gpurun/launcher/journal"
	"github.com/gpurun/gpurun/launcher/mask"
	"github.com/gpurun/gpurun/launcher/runstate"
	"github.com/gpurun/gpurun/model"
	"github.com/gpurun/gpurun/strategy"
)

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
			if err := e.inTime(); err != nil {
				e.Page.Printf("gpurun: warning: the report was not written: %v\n", err)
			} else {
				e.Told(filepath.Join(e.Dir, File))
			}
		}
		show(event)
	}
}

// patience is how long the end of a run waits for its report: a disk may hang.
const patience = 15 * time.Second

// inTime writes the report, or gives up to wait for it.
func (e End) inTime() error {
	written := make(chan error, 1)
	go func() { written <- e.write() }()
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case err := <-written:
		return err
	case <-timer.C:
		return fmt.Errorf("it took longer than %s; gpurun report writes it", patience)
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
