package job

import (
	"cmp"
	"fmt"
	"time"

	"github.com/gpurun/gpurun/strategy"
)

// NewestCheckpoint is the newest complete checkpoint of a run that began then, and when it was
// written. Where [resume] says where to look and there is none, none says why.
func (p *Prepared) NewestCheckpoint(began time.Time) (path string, written time.Time, none string) {
	c := p.Checkpoints()
	switch path = c.Newest(began); {
	case path != "":
		return path, c.Written(path), ""
	case p.Job().Resume.Latest != "":
		return "", time.Time{}, c.None(began)
	}
	return "", time.Time{}, ""
}

// FoundCheckpoints says what there is to start from when the run is started again, beside the
// checkpoint that was decided.
func (p *Prepared) FoundCheckpoints(began time.Time) func(decided string) strategy.Checkpoints {
	return func(decided string) strategy.Checkpoints {
		f := strategy.Checkpoints{Decided: decided != "" && p.Checkpoints().Complete(decided, began)}
		f.Newest, f.Written, _ = p.NewestCheckpoint(began)
		return f
	}
}

// Resumption says from where an attempt goes on, and what becomes of a run that has
// nothing to go on from.
func (p *Prepared) Resumption() string {
	c, bound := p.Checkpoints(), p.Policy().RestartFromZero
	ends := fmt.Sprintf("an attempt that runs out of memory after more than %s ends the run with exit code %d (recovery.restart_from_zero)",
		bound, strategy.CodeExhausted)
	switch {
	case c.Glob != "" && bound > 0:
		return fmt.Sprintf("goes on from: the newest complete %s; while there is none, %s", c.Glob, ends)
	case c.Glob != "" || c.Pointer != "":
		return fmt.Sprintf("goes on from: the newest complete %s", cmp.Or(c.Glob, c.Pointer))
	case bound > 0:
		return fmt.Sprintf("goes on from: the beginning, since nothing is known of the job's checkpoints; %s: set [resume] in train.toml", ends)
	}
	return "goes on from: the beginning, since nothing is known of the job's checkpoints: set [resume] in train.toml"
}
