package doctor

import (
	"context"
	"os"
	"path/filepath"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/gpurun/gpurun/launcher/errext"
	"github.com/gpurun/gpurun/launcher/verb"
)

// Usage and Description are the help of the verb.
const (
	Usage       = "gpurun doctor [--json] [--nvme DIR] [--busy] [train.toml]"
	Description = `Looks at the interpreter and its PyTorch, the GPUs and who uses them, host memory, limits, disks,
DeepSpeed, the ranks together and the scheduler, and says how to mend what is wrong: ✓ is as it should
be, ! costs speed or will matter some day, ✗ keeps jobs from training, – was not looked at. With a
train.toml it looks at what that job uses. It ends within a minute, and leaves nothing behind.
With --json: {"checks": [{"name", "group", "state": "ok" | "warning" | "problem" | "skipped", "found",
"fix"}], "problems", "warnings"}`
)

// Flags are the verb's own.
func Flags() []cli.Flag {
	return []cli.Flag{
		&cli.StringFlag{Name: "nvme", Usage: "measure how fast `DIR` writes and reads", DefaultText: "recovery.nvme_path"},
		&cli.BoolFlag{Name: "busy", Usage: "try GPUs that others use, too: it takes all their free memory for some seconds", DisableDefaultText: true},
		&cli.BoolFlag{Name: "json", Usage: "print one JSON document", DisableDefaultText: true},
	}
}

// Run is the verb: it examines this machine, and the job of a train.toml where one is
// named, and writes the report to out. The exit code is 1 where there is a problem. Errors
// are of the command line or the train.toml, or say that a signal has stopped it.
func Run(ctx context.Context, c *cli.Context, out *os.File) (code int, err error) {
	o := Subject{TrainFile: c.Args().First(), NVMe: c.String("nvme"), Busy: c.Bool("busy"), Environ: os.Environ()}
	if err := verb.AtMost(c, 1); err != nil {
		return 0, err
	}
	if o.TrainFile != "" && !strings.EqualFold(filepath.Ext(o.TrainFile), ".toml") {
		return 0, errext.Errorf("gpurun doctor takes a train.toml, or nothing", "%q is no train.toml", o.TrainFile)
	}
	if o.Dir, err = os.Getwd(); err != nil {
		return 0, err
	}
	r, err := Examine(ctx, o)
	if err != nil {
		return 0, err
	}
	if c.Bool("json") {
		return r.Code(), r.WriteJSON(out)
	}
	return r.Code(), r.Write(out, os.Getenv)
}
