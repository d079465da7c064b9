package doctor

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gpurun/gpurun/launcher"
	"github.com/gpurun/gpurun/launcher/cluster"
	"github.com/gpurun/gpurun/launcher/environ"
	"github.com/gpurun/gpurun/launcher/errext"
	"github.com/gpurun/gpurun/launcher/gpu"
	"github.com/gpurun/gpurun/launcher/host"
	"github.com/gpurun/gpurun/launcher/job"
	"github.com/gpurun/gpurun/launcher/mask"
	"github.com/gpurun/gpurun/launcher/python"
)

// prepareBound is how long a job's own questions may take to answer.
const prepareBound = 20 * time.Second

// A patient is what is looked at: the machine, as a job sees it.
type patient struct {
	root fs.FS // whose root is the machine's
	host host.Machine
	shm  string // where shared memory is mounted

	environ []string     // gpurun's own environment
	env     environ.Vars // what ranks inherit
	dir     string       // where they run
	runDir  string       // where the run directory will be
	nvme    string       // to offload to; empty for none
	busy    bool         // GPUs are tested that others use

	job      *job.Job      // nil without a train.toml
	prepared *job.Prepared // nil without, and where the job cannot be prepared
	refused  error         // why not

	python *python.Interpreter // nil where there is none
	why    string              // where it comes from, or why there is none
	lost   error               // the search's error

	driver *gpu.Connection
	cards  func() cards
	torch  func() (torchFacts, error)
	limits func() (limits, error)
}

// A Subject is what to examine: this machine, and the job of a train.toml.
type Subject struct {
	TrainFile string   // empty for the machine alone
	NVMe      string   // a folder to offload to, before recovery.nvme_path
	Busy      bool     // test GPUs that others use, too
	Environ   []string // gpurun's own environment, in the form of os.Environ
	Dir       string   // working directory
}

// Examine looks at a machine, and at a job on it. It ends within a minute, and sooner
// with ctx, whose error it then returns. Other errors are of the train.toml, and have a
// hint or are a *job.Error.
func Examine(ctx context.Context, o Subject) (Report, error) {
	p := newPatient(o)
	defer func() { _ = p.driver.Close() }() // a driver that does not answer is among the results
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

// stopped is the error of an examination that was ended from outside: of a signal, with
// its exit code.
func stopped(ctx context.Context) error {
	var s *launcher.Signal
	if errors.As(context.Cause(ctx), &s) {
		return errext.WithCode(fmt.Errorf("stopped by %s", unix.SignalName(s.Number)), 128+int(s.Number))
	}
	return ctx.Err()
}

func newPatient(o Subject) *patient {
	p := &patient{
		root: os.DirFS("/"), host: host.This(), shm: "/dev/shm", environ: o.Environ, dir: o.Dir, busy: o.Busy,
		env: environ.Parse(cluster.RankEnv(o.Environ)), runDir: filepath.Join(o.Dir, ".gpurun"),
	}
	p.driver = gpu.Connect()
	return p
}

// read takes in a train.toml, and prepares its job. A job that cannot be prepared is a
// result; its own words still say where to look.
func (p *patient) read(ctx context.Context, file string) error {
	ctx = python.Guarded(ctx)
	j, _, err := job.Open(ctx, []string{file}, p.environ, p.dir)
	if err != nil {
		return err
	}
	p.job, p.dir, p.env, p.nvme = j, j.Workdir, p.env.With(j.Env), j.Recovery.NVMePath
	if p.runDir = j.Launch.LogDir; p.runDir == "" {
		p.runDir = filepath.Join(j.Workdir, ".gpurun", j.Name)
	}
	limited, cancel := context.WithTimeout(ctx, prepareBound)
	defer cancel()
	p.prepared, p.refused = job.Prepare(limited, j, job.Machine{Environ: p.environ, NVML: p.driver})
	if p.refused != nil && ctx.Err() == nil && limited.Err() != nil {
		p.refused = fmt.Errorf("no answer after %s: %w", prepareBound, p.refused)
	}
	return nil
}

// findPython finds the interpreter: the prepared job's own, or the one that it would have.
func (p *patient) findPython() {
	s := python.Finder{Dir: p.dir, Env: p.env}
	switch {
	case p.prepared != nil:
		if p.python = p.prepared.Interpreter(); p.python == nil {
			p.why = "the job is a program, whose interpreter nobody knows"
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

// ask sets up the questions that several checks share: each is asked once, when its
// answer is first needed.
func (p *patient) ask(ctx context.Context) {
	p.cards = sync.OnceValue(p.lookAtCards)
	p.torch = sync.OnceValues(func() (torchFacts, error) { return p.askTorch(ctx) })
	p.limits = sync.OnceValues(func() (limits, error) { return p.readLimits(ctx) })
}

// absolute is a path from a directory on.
func absolute(dir, path string) string {
	if filepath.IsAbs(path) {
		return path
	}
	return filepath.Join(dir, path)
}
