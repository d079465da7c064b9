// Package probe is what runs inside the training process: it tells of its end, of what it
// runs with and of its steps, and changes what gpurun's orders say.
//
// A rank that raised and then hangs, in an atexit function, in a destructor or in a
// collective that its peers will never join, has no exit that could be waited for.
// Files in the rank's folder tell of what cannot be seen from outside:
//
//   - error.json, which torch.distributed.elastic's @record writes where a script
//     uses it;
//   - probe.json, which the probe writes before any other hook, atexit function or
//     destructor runs: a sitecustomize.py on the rank's PYTHONPATH, with a hook before
//     sys.excepthook;
//   - process.json: what the process runs with, read from what it calls, and what was
//     changed in it;
//   - memory.json: what the process measured of its memory;
//   - steps: the latest optimizer step;
//   - programs: what each Python process below a shell comes to;
//   - stacks: where it was, each time that it was asked;
//   - snapshot-0.json, snapshot-0.pickle, snapshot-1…: what the allocator held when memory ran
//     out: a digest, which gpurun reads, and PyTorch's own file, for people.
//
// Watch sees them as they appear. A process that the job starts itself and that trains
// has files with its number in their names.
//
// # The Python parts
//
//	sitecustomize.py  the start: who this is, the end's hook, nothing else
//	rank.py           which process is the rank
//	imports.py        what is done once a module is imported
//	children.py       the processes that the job starts itself
//	process.py        process.json
//	root.py model.py  the module that is trained, at its first call
//	precision.py switches.py loaders.py cycles.py
//	                  what is seen of it, of its batches, and of how many make a step
//	memory.py         memory.json: what the first steps, and longer inputs, needed
//	meters.py marks.py figures.py inputs.py optimizers.py ranout.py
//	                  what is held, by block; of the model, its input, its optimizer;
//	                  and how memory ran out
//	snapshot.py       what the allocator holds when memory runs out
//	digest.py         which lines hold it
//	stacks.py         where the process is, when the job has stalled
//	rootcalls.py      the calls of the root, for those who count or measure them
//	loss.py trainerloss.py backward.py batches.py
//	                  whether the loss keeps its scale with another accumulation, and
//	                  whether all batches have one shape and no padding
//	samples.py rows.py tape.py replay.py between.py
//	                  whether samples depend on each other in the model and in the loss,
//	                  and whether all micro batches of a step are computed alike
//	steps.py gate.py  optimizer steps; where ranks wait for each other
//	pace.py           what a rank of several takes of a step for itself
//	huggingface.py lightning.py deepspeed.py words.py
//	                  what frameworks are set to
//	calls.py          orders that change an argument in the job's code
//	rungs.py …        rungs that are turned inside the model
//	compared.py       recomputed blocks beside their first run
//	report.py         the end, and how a file is written
//	ends.py           the exit code, where the kernel does not say it
//
// # What the probe promises
//
// Until torch is imported, Python goes on as if the probe were not there. The
// sitecustomize that would have been found is loaded, PYTHONPATH, sys.path and
// sys.modules are as without the probe when the script starts, and sys.excepthook still
// is sys.__excepthook__. It imports nothing that Python does not import by itself and
// takes less than a millisecond: the compiled parts are kept in the user's cache folder for all
// attempts and runs; and as long again once torch is there. A finder in front of sys.meta_path looks
// names up in a dictionary until the first optimizer step.
//
// What listens in the training process is taken away again as soon as it has heard: at
// the root's first call, or after the first three optimizer steps. What stays is one hook
// that counts steps, and one that compares the size of the root's input with the largest
// so far: some ten microseconds a step, and two lines in a traceback through the root. In a
// job of several ranks two more add as much, and a line, for what each takes of a step for
// itself. A longer input has its step measured. torch.compile makes the same of the job, and of a
// compiled root only steps and their peaks are told.
//
// Nothing that the job can read is reset: PyTorch's peaks are what they would be. So the
// peak of an instant is told where it is a new one of the process. Whatever fails in a hook is noted in process.json, and the job goes on.
//
// The rank is the first Python process below gpurun's child that runs the job's script
// or module, behind any wrapper. A wrapper that is Python itself keeps gpurun's
// variables for those below it and is otherwise as if the probe were not there. Of a
// program that gpurun cannot name it is the first process that trains.
//
// The rank reports its end, and so does each Python process below a shell that imports
// torch, with whether it trained (probe-123.json): a shell can end with 0 after a training
// that failed. A fork of them and a thread report none. SystemExit and KeyboardInterrupt are
// no failures there. A process that only loads data writes nothing. Programs follows all
// Python processes below a shell to their ends, those without the hook too.
//
// What is told is certain, or absent: a loader's batch size is told where the model was
// seen to be given so many samples, accumulation where two steps in a row took as many
// batches, and nothing where what a framework is set to is not what was seen.
//
// # Limits
//
//   - Nothing is written under python -S, -E, -I or -i, and by other programs.
//   - A rank below a shell that the job's own Python starts is not followed, since its
//     environment is no longer gpurun's; one below a shell that gpurun starts is.
//   - Where a script's own excepthook neither calls the one before it nor
//     sys.__excepthook__, probe.json is written as the last atexit function runs.
//   - A finally clause that hangs ends no exception: neither the probe nor @record
//     knows of it, nor does the output.
//   - os._exit, a signal and a crash in native code leave no probe.json. The exit tells.
//   - A model that is only called inside a compiled function is not seen, nor is one
//     that is called by methods other than its forward; their steps are.
//   - Settings are read from Python 3.8 on; older ones tell of their end alone.
package probe

import (
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/gpurun/gpurun/launcher/private"
)

// hook is the probe's Python part.
//
//go:embed sitecustomize.py inside/*.py
var hook embed.FS

// The files in a rank's folder that tell how it ended, and what it runs with. Those of a
// process that the job started itself have its number in their names: process-123.json.
const (
	probeFile   = "probe.json"
	errorFile   = "error.json" // TORCHELASTIC_ERROR_FILE
	processFile = "process.json"
	memoryFile  = "memory.json"
	stepsFile   = "steps"
)

// fileVariable tells the probe where to write, and whether to.
const fileVariable = "GPURUN_PROBE_FILE"

// namesVariable tells the probe of which variables it tells the values.
const namesVariable = "GPURUN_PROBE_NAMES"

// ordersVariable tells the probe where its orders are.
const ordersVariable = "GPURUN_PROBE_ORDERS"

// Install puts the hook into a new folder below that of the attempt, whose name
// nobody can guess and which only the user can write to: Python runs what it finds
// there, a compiled file in its __pycache__ first. The ranks carry out the orders. What
// a rank tells of its end includes the values that the variables in names then have:
// see Environ.
//
// An error means that the ranks have to do without the probe.
func Install(dir string, orders Orders, names ...string) (*Installed, error) {
	p, err := install(dir, orders)
	if err != nil {
		return nil, fmt.Errorf("install the probe: %w", err)
	}
	p.names = strings.Join(names, ",")
	return p, nil
}

func install(dir string, orders Orders) (*Installed, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	if strings.ContainsRune(dir, os.PathListSeparator) {
		return nil, fmt.Errorf("PYTHONPATH cannot hold %q, which contains a colon", dir)
	}
	folder, err := os.MkdirTemp(dir, "probe-*")
	if err != nil {
		return nil, err
	}
	// Python without its site module (-S) looks for modules in the folder and does not
	// run the hook that takes it away: none of the parts may stand for another.
	if err := os.Mkdir(filepath.Join(folder, "inside"), 0o700); err != nil {
		return nil, err
	}
	if err := plantParts(folder); err != nil {
		return nil, err
	}
	text, err := orders.text()
	if err == nil {
		err = plant(filepath.Join(folder, ordersFile), text)
	}
	return &Installed{dir: dir, folder: folder}, err
}

// plantParts writes the Python parts. Their compiled forms are kept for all attempts and
// runs where that is safe.
func plantParts(folder string) error {
	digest := sha256.New()
	err := fs.WalkDir(hook, ".", func(name string, f fs.DirEntry, err error) error {
		if err != nil || f.IsDir() {
			return err
		}
		text, err := hook.ReadFile(name)
		path := filepath.Join(folder, name)
		if err == nil {
			err = plant(path, text)
		}
		if err == nil {
			err = os.Chtimes(path, sourceTime, sourceTime)
		}
		fmt.Fprintf(digest, "%s %d\n%s", name, len(text), text)
		return err
	})
	if err != nil {
		return err
	}
	compiled, err := compiledFolder(hex.EncodeToString(digest.Sum(nil)[:16]))
	if err != nil {
		return nil // Python compiles the parts in each attempt
	}
	for _, link := range []string{"__pycache__", filepath.Join("inside", "__pycache__")} {
		if err := os.Symlink(compiled, filepath.Join(folder, link)); err != nil {
			return err
		}
	}
	return nil
}

// sourceTime is when the parts were written, for Python: a compiled form is that of a source
// of the same time and size, and the folder's name has the digest of all of them.
var sourceTime = time.Unix(1_000_000_000, 0)

// compiledFolder is where Python keeps the compiled forms of this probe, for each of its own
// versions. It is the user's alone, since Python runs what it finds there; the error says why
// it cannot be trusted, or made.
func compiledFolder(digest string) (string, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	if _, err := os.Stat(filepath.Dir(cache)); err != nil {
		return "", err // there is no home to make one in
	}
	folder := filepath.Join(cache, "gpurun", "probe-"+digest)
	if err := private.MkdirAll(folder); err != nil {
		return "", err
	}
	if err := private.CheckOwner(cache); err != nil {
		return "", err
	}
	for _, path := range []string{filepath.Dir(folder), folder} {
		if err := private.CheckOwn(path); err != nil {
			return "", err
		}
	}
	return folder, nil
}

// plant writes a file that is not there yet.
func plant(path string, text []byte) error {
	f, err := private.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY)
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	return errors.Join(err, f.Close())
}

// rankFolder is where a rank's files are: its logs, and what it tells of its end.
func rankFolder(dir string, rank int) string {
	return filepath.Join(dir, fmt.Sprintf("rank%d", rank))
}

// lookup finds a variable's value; the last one counts, as for execve.
func lookup(env []string, name string) (value string) {
	for _, word := range env {
		if v, ok := strings.CutPrefix(word, name+"="); ok {
			value = v
		}
	}
	return value
}
