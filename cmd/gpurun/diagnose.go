package main

import (
	"github.com/urfave/cli/v2"

	"github.com/gpurun/gpurun/launcher/diagnose"
	"github.com/gpurun/gpurun/launcher/ranks"
	"github.com/gpurun/gpurun/launcher/show"
)

func diagnoseCommand(s stdio) *cli.Command {
	return &cli.Command{
		Name:      "diagnose",
		Usage:     "find out why a job died, from its output",
		UsageText: "gpurun diagnose [flags] FILE|DIRECTORY…\ngpurun diagnose [flags] --rank 0=FILE --rank 1=FILE …",
		Description: "A file holds a job's output, plain or compressed by gzip or bzip2, as the job wrote it or as docker, kubectl,\n" +
			"journalctl or a log shipper recorded it. - is standard input, which is also read if no file is named and input\n" +
			"is piped in. Files of one job, such as slurm-7.out and slurm-7.err, or rank0.log and rank1.log, are read together.\n" +
			"A directory is a run of gpurun, a folder above one, or torchrun's --log-dir; of several runs, the newest is taken.\n" +
			"Any other directory is searched for output.\n" +
			"Ctrl-C ends the reading of a pipe, and prints the answer so far.\n" +
			"If a file holds several starts of the job, the diagnosis and the exit code are those of the last one.\n" +
			"With --json: one object for each job, on a separate line.",
		Flags: []cli.Flag{
			jsonFlag(),
			&cli.BoolFlag{Name: "verbose", Aliases: []string{"v"}, Usage: "also show the rules of the diagnosis",
				DisableDefaultText: true},
			&cli.IntFlag{Name: "exit-code", Usage: "the exit code that the job ended with; 128+`N` or -N for signal N",
				DefaultText: "not known"},
			&cli.StringSliceFlag{Name: "rank", Usage: "the output of one rank, as `K=FILE`; all that are given are one run"},
			&cli.IntFlag{Name: "attempt", Value: -1, Usage: "which attempt `N` of a directory", DefaultText: "the last one"},
		},
		Action: func(c *cli.Context) error { return diagnoseFiles(c, s) },
	}
}

// diagnoseFiles prints a diagnosis of each argument, and reports unreadable ones at the end.
func diagnoseFiles(c *cli.Context, s stdio) error {
	ask := diagnose.Request{
		Names: c.Args().Slice(), Ranks: c.StringSlice("rank"), Attempt: c.Int("attempt"), Stdin: s.in,
		FileSystem: ranks.ThisMachine().FileSystemOf,
		Show: func(d diagnose.FileDiagnosis) error {
			if c.Bool("json") {
				return show.WriteJSON(s.out, nil, d)
			}
			if _, err := d.WriteTo(s.out); err != nil || !c.Bool("verbose") {
				return err
			}
			return d.WriteRules(s.out)
		},
	}
	if c.IsSet("exit-code") {
		code := c.Int("exit-code")
		ask.ExitCode = &code
	}
	return ask.Run()
}
