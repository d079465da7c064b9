package artifacts

import (
	"cmp"
	"errors"
	"fmt"
	"os"

	"github.com/gpurun/gpurun/launcher/errext"
)

// A Question is what gpurun diagnose is asked.
type Question struct {
	// Names are files and folders, - for Stdin, which is also read where nothing is named.
	// Ranks are outputs of single ranks of one run, as K=FILE.
	Names, Ranks []string
	// Attempt is the number of a folder's attempt, negative for its last; ExitCode is what
	// the job ended with, nil where nobody knows: 128+N or -N for signal N.
	Attempt  int
	ExitCode *int
	Stdin    *os.File
	// Show tells of each diagnosis; an error of its own ends all.
	Show func(Diagnosis) error
}

// lastSignal is the highest signal of Linux (SIGRTMAX in signal(7)).
const lastSignal = 64

// Answer diagnoses all that is named. The error tells of what could not be read, with a hint.
func (q Question) Answer() error {
	if len(q.Names) == 0 && len(q.Ranks) == 0 && holdsData(q.Stdin) {
		q.Names = []string{"-"}
	}
	if len(q.Names) == 0 && len(q.Ranks) == 0 {
		return errext.Errorf("gpurun diagnose slurm-1234.out", "diagnose takes the files that hold the job's output")
	}
	if n := q.ExitCode; n != nil && (*n < -lastSignal || *n > 255) {
		return errext.Errorf(fmt.Sprintf("a process ends with 0 to 255; -1 to -%d is for a signal", lastSignal), "--exit-code: %d is not an exit code that a job can end with", *n)
	}
	in := Collector{Stdin: q.Stdin, Attempt: q.Attempt, ExitCode: q.ExitCode}
	var failed []error
	tell := func(a Artifacts, err error) error {
		if err != nil {
			failed = append(failed, err)
			return nil
		}
		return q.Show(Diagnose(a))
	}
	if len(q.Ranks) > 0 {
		if err := tell(in.Ranks(q.Ranks)); err != nil {
			return err
		}
	}
	for _, name := range q.Names {
		if err := tell(in.Collect(name)); err != nil {
			return err
		}
	}
	if err := errors.Join(failed...); err != nil {
		return errext.WithHint(err, cmp.Or(errext.Hint(err), "diagnose reads files of output, run directories of gpurun, and torchrun's --log-dir"))
	}
	return nil
}

// holdsData reports whether standard input is a file or a pipe: not a terminal, which
// would be waited for, nor /dev/null.
func holdsData(in *os.File) bool {
	info, err := in.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice == 0 && !info.IsDir()
}
