package main

import (
	"cmp"
	"errors"
	"fmt"
	"os"

	"github.com/urfave/cli/v2"

	"github.com/gpurun/gpurun/launcher/artifacts"
	"github.com/gpurun/gpurun/launcher/console"
	"github.com/gpurun/gpurun/launcher/errext"
)

func diagnoseCommand(s streams) *cli.Command {
	return &cli.Command{
		Name:      "diagnose",
		Usage:     "say why a job died, from what it left behind",
		UsageText: "gpurun diagnose [flags] FILE|DIRECTORY…\ngpurun diagnose [flags] --rank 0=FILE --rank 1=FILE …",
		Description: "A file holds a job's output, as it is or packed by gzip or bzip2. - is standard input, which is also read\n" +
			"where nothing is named and something is piped in.\n" +
			"A directory is a run of gpurun, a folder above one, or torchrun's --log-dir; of several runs, the newest is taken.\n" +
			"With --json: one object for each, on a line of its own.",
		Flags: []cli.Flag{
			jsonFlag(),
			&cli.IntFlag{Name: "exit-code", Usage: "the exit code that the job ended with; 128+`N` or -N for signal N", DefaultText: "not known"},
			&cli.StringSliceFlag{Name: "rank", Usage: "the output of one rank, as `K=FILE`; all that are given are one run"},
			&cli.IntFlag{Name: "attempt", Value: -1, Usage: "which attempt `N` of a directory", DefaultText: "the last one"},
		},
		Action: func(c *cli.Context) error { return diagnose(c, s) },
	}
}

// lastSignal is the highest signal of Linux (SIGRTMAX in signal(7)).
const lastSignal = 64

// diagnose prints a diagnosis of each argument; what cannot be read is told at
// the end.
func diagnose(c *cli.Context, s streams) error {
	named := c.StringSlice("rank")
	names := c.Args().Slice()
	if len(names) == 0 && len(named) == 0 && holdsData(s.in) {
		names = []string{"-"}
	}
	if len(names) == 0 && len(named) == 0 {
		return errext.Errorf("gpurun diagnose slurm-1234.out", "diagnose takes the files that hold the job's output")
	}
	in := artifacts.Collector{Stdin: s.in, Attempt: c.Int("attempt")}
	if c.IsSet("exit-code") {
		n := c.Int("exit-code")
		if n < -lastSignal || n > 255 {
			return errext.Errorf(fmt.Sprintf("a process ends with 0 to 255; -1 to -%d is for a signal", lastSignal), "--exit-code: %d is not an exit code that a job can end with", n)
		}
		in.ExitCode = &n
	}
	var failed []error
	tell := func(a artifacts.Artifacts, err error) error {
		if err != nil {
			failed = append(failed, err)
			return nil
		}
		if c.Bool("json") {
			return console.WriteJSON(s.out, nil, artifacts.Diagnose(a))
		}
		_, err = artifacts.Diagnose(a).WriteTo(s.out)
		return err
	}
	if len(named) > 0 {
		if err := tell(in.Ranks(named)); err != nil {
			return err
		}
	}
	for _, name := range names {
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
