package doctor

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/urfave/cli/v2"
	"golang.org/x/sys/unix"

	"github.com/gpurun/gpurun/launcher"
	"github.com/gpurun/gpurun/launcher/cluster"
	"github.com/gpurun/gpurun/launcher/errext"
	"github.com/gpurun/gpurun/launcher/ranks"

	"github.com/gpurun/gpurun/launcher/commandline"
	"github.com/gpurun/gpurun/launcher/job"
	"github.com/gpurun/gpurun/launcher/manual"
	"github.com/gpurun/gpurun/launcher/mask"
	"github.com/gpurun/gpurun/launcher/python"
)

// Usage and Description are the help of the verb.
const (
	Usage       = "gpurun doctor [--json] [--nvme DIR] [--busy] [train.toml]"
	Description = `Checks the interpreter and its PyTorch, the GPUs and their users, host memory, limits, disks,
the ranks together and the scheduler, and shows how to repair what is wrong: ✓ is right,
! costs speed or may cause trouble later, ✗ keeps jobs from training, – was not checked. With a
train.toml it checks what that job uses. It ends within a minute, and leaves nothing behind.
With --json: {"checks": [{"name", "group", "state": "ok" | "warning" | "problem" | "skipped", "found",
"fix"}], "problems", "warnings"}`
)

// Flags are the verb's own.
func Flags() []cli.Flag {
	return []cli.Flag{
		&cli.StringFlag{Name: "nvme", Usage: "measure how fast `DIR` writes and reads", DefaultText: "recovery.nvme_path"},
		&cli.BoolFlag{Name: "busy", Usage: "try GPUs that others use, too", DisableDefaultText: true},
		&cli.BoolFlag{Name: "json", Usage: "print one JSON document", DisableDefaultText: true},
	}
}

// Run carries out the verb: it checks this machine, and the job of a train.toml if given, and writes the
// report to out. The exit code is 1 if there is a problem. An error is in the command line or the train.toml,
// or means that a signal stopped the checks.
func Run(ctx context.Context, c *cli.Context, out *os.File) (code int, err error) {
	o := Subject{TrainFile: c.Args().First(), NVMe: c.String("nvme"), Busy: c.Bool("busy"), Environ: os.Environ()}
	if err := manual.AtMost(c, 1); err != nil {
		return 0, err
	}
	if o.TrainFile != "" && !strings.EqualFold(filepath.Ext(o.TrainFile), ".toml") {
		return 0, errext.Errorf("gpurun doctor takes a train.toml, or nothing", "%q is not a train.toml", o.TrainFile)
	}
	if o.Dir, err = os.Getwd(); err != nil {
		return 0, err
	}
	r, err := examineSubject(ctx, o)
	if err != nil {
		return 0, err
	}
	if c.Bool("json") {
		return r.Code(), r.WriteJSON(out)
	}
	return r.Code(), r.Write(out, os.Getenv)
}

// prepareBound is how long the preparation of a job may take.
const prepareBound = 20 * time.Second

// A patient is the machine to check, as a job sees it.
type patient struct {
	root fs.FS // of the machine
	host ranks.Machine
	shm  string // where shared memory is mounted

	environ []string            // gpurun's own environment
	env     commandline.Environ // what ranks inherit
	dir     string              // where they run
	runDir  string              // where the run directory will be
	nvme    string              // to offload to; empty for none
	busy    bool                // also test GPUs that other processes use

	job      *job.Job      // nil without a train.toml
	prepared *job.Prepared // nil without a job, and if it cannot be prepared
	refused  error         // why the job cannot be prepared

	python *python.Interpreter // nil for none
	why    string              // where it comes from, or why there is none
	lost   error               // the search's error

	driver *ranks.NVMLConnection
	cards  func() cards
	torch  func() (torchFacts, error)
	limits func() (limits, error)
}

// A Subject names what to check: this machine, and the job of a train.toml.
type Subject struct {
	TrainFile string   // empty for the machine alone
	NVMe      string   // a folder to offload to, before recovery.nvme_path
	Busy      bool     // also test GPUs that other processes use
	Environ   []string // gpurun's own environment, in the form of os.Environ
	Dir       string   // working directory
}

// examineSubject makes all checks of a machine and a job. It takes at most a minute. If ctx ends earlier, it
// returns its error. Other errors concern the train.toml, and have a hint or are a *job.Error.
func examineSubject(ctx context.Context, o Subject) (Report, error) {
	p := newPatient(o)
	defer func() { _ = p.driver.Close() }() // the results report a driver that does not answer
	limited, cancel := context.WithTimeout(ctx, whole)
	defer cancel()
	if o.TrainFile != "" {
		if err := p.read(limited, o.TrainFile); err != nil {
			return Report{}, err
		}
	}
	if o.NVMe != "" {
		p.nvme = absolute(o.Dir, o.NVMe)
	}
	p.findPython()
	p.ask(limited)
	results := p.run(limited, checks())
	if err := stopped(ctx); err != nil {
		return Report{}, err
	}
	var argv []string
	if p.job != nil {
		argv = p.job.Argv
	}
	return newReport(results, mask.New(argv, p.env)), nil
}

// stopped returns the error of checks that a signal ended, with its exit code.
func stopped(ctx context.Context) error {
	var s *launcher.Signal
	if errors.As(context.Cause(ctx), &s) {
		return errext.WithCode(fmt.Errorf("stopped by %s", unix.SignalName(s.Number)), 128+int(s.Number))
	}
	return ctx.Err()
}

func newPatient(o Subject) *patient {
	return &patient{
		root: os.DirFS("/"), host: ranks.ThisMachine(), shm: "/dev/shm", environ: o.Environ, dir: o.Dir, busy: o.Busy,
		driver: ranks.ConnectNVML(),
		env:    commandline.ParseEnviron(cluster.RankEnv(o.Environ)), runDir: filepath.Join(o.Dir, ".gpurun"),
	}
}

// read reads a train.toml, and prepares its job. A job that cannot be prepared is a result. The other checks
// still use its train.toml.
func (p *patient) read(ctx context.Context, file string) error {
	ctx = python.Guarded(ctx)
	j, _, err := job.Open(ctx, []string{file}, p.environ, p.dir)
	if err != nil {
		return err
	}
	p.job, p.dir, p.env, p.nvme = j, j.Workdir, p.env.With(j.Env), j.Policy.NVMePath
	if p.runDir = j.Launch.LogDir; p.runDir == "" {
		p.runDir = filepath.Join(j.Workdir, ".gpurun", j.Name)
	}
	limited, cancel := context.WithTimeout(ctx, prepareBound)
	defer cancel()
	p.prepared, p.refused = job.Prepare(limited, j, job.Surroundings{Environ: p.environ, NVML: p.driver})
	if p.refused != nil && ctx.Err() == nil && limited.Err() != nil {
		p.refused = fmt.Errorf("no answer after %s: %w", prepareBound, p.refused)
	}
	return nil
}

// findPython finds the interpreter: that of the prepared job, or the one that a job would get.
func (p *patient) findPython() {
	s := python.Finder{Dir: p.dir, Env: p.env}
	switch {
	case p.prepared != nil:
		if p.python = p.prepared.Interpreter; p.python == nil {
			p.why = "the job is a program, whose interpreter is not known"
		} else {
			p.why = "the job's"
		}
		return
	case p.job != nil:
		s.Named = p.job.Python
	}
	path, why, err := s.Find()
	p.why, p.lost = why, err
	if err == nil {
		p.python = python.At(path, p.dir, p.env)
	} else {
		p.why = "there is no interpreter"
	}
}

// ask sets up the values that several checks share. Each is read once, when first needed.
func (p *patient) ask(ctx context.Context) {
	p.cards = sync.OnceValue(p.readCards)
	p.torch = sync.OnceValues(func() (torchFacts, error) { return p.readTorch(ctx) })
	p.limits = sync.OnceValues(func() (limits, error) { return p.readLimits(ctx) })
}

// absolute returns a path, relative to dir if it is not absolute.
func absolute(dir, path string) string {
	if filepath.IsAbs(path) {
		return path
	}
	return filepath.Join(dir, path)
}
