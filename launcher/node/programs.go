package node

import (
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"github.com/gpurun/gpurun/launcher"
	"github.com/gpurun/gpurun/launcher/hook"
	"github.com/gpurun/gpurun/strategy"
)

// shell reports whether the job is a program that starts other programs, such as a shell script. Its exit
// code may be that of any of them.
func (n *Node) shell(l launcher.Launch) bool {
	argv := n.opts.Argv(l.Command.Argv, 0)
	return n.opts.Plain && !n.opts.Launcher && n.opts.Script == "" && n.opts.Module == "" && !strings.HasPrefix(filepath.Base(argv[0]), "python")
}

// openPrograms prepares to follow the programs of a shell; nil for other jobs.
func (n *Node) openPrograms(a *attempt, l launcher.Launch) *hook.Programs {
	if !n.shell(l) {
		return nil
	}
	programs, err := hook.OpenPrograms(l.Dir, a.meeting.Offset, a.emit)
	if err != nil {
		a.emit(strategy.Fact{Time: time.Now(), Rank: -1, Source: "gpurun", Content: strategy.Gap(err.Error())})
	}
	return programs
}

// awaitPrograms delays a shell's exit until its background programs have trained, and emits the ends of all
// programs below it.
func (a *attempt) awaitPrograms(f *strategy.Fact) {
	if a.programs == nil {
		return
	}
	exit := f.Exit()
	exit.Shell = true
	if exit.Code == 0 && !exit.Stopped {
		waited := a.programs.AwaitTraining(a.lingering, a.patience(), func(names string) {
			a.node.log.Note(fmt.Sprintf("the command has ended and left its training in the background; waiting for it: %s", names))
		})
		if waited {
			f.Time = time.Now()
		}
		exit.Stopped = waited && a.lingering.Err() != nil
	}
	a.programs.Look()
}
