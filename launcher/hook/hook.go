// Package hook is what gpurun loads into the training process, and the reader of its files: it reports how the
// process ends, what it runs with, its steps and its memory, and changes what gpurun's orders name.
//
// A rank that raised and then hangs, in an atexit function, in a destructor or in a
// collective that its peers will never join, has no exit that could be waited for.
// Files in the rank's folder show what cannot be seen from outside:
//
//   - error.json, which torch.distributed.elastic's @record writes where a script
//     uses it;
//   - probe.json, which the hook writes before any other hook, atexit function or
//     destructor runs: a sitecustomize.py on the rank's PYTHONPATH, with a hook before
//     sys.excepthook;
//   - process.json: what the process runs with, read from its calls, and what was
//     changed in it;
//   - memory.json: what the process measured of its memory;
//   - steps: the latest optimizer step;
//   - programs: how far each Python process below a shell has come;
//   - hook-error.txt: the traceback of the first error in the hook itself;
//   - stacks: where the process was, each time that it received the signal;
//   - snapshot-0.json, snapshot-0.pickle, snapshot-1…: what the allocator held when memory ran
//     out: a digest, which gpurun reads, and PyTorch's own file, for people.
//
// Watch reads them as they appear. A process that the job starts itself and that trains
// has files with its number in their names.
//
// # The Python package
//
// The modules are in the folder inside, in one folder for each layer. A module imports those of its own layer and of
// lower ones, never one that imports it (make lint). sitecustomize.py, the start, makes them modules that run at their
// first use and have no entry in sys.modules; so no two have the same name.
//
//	setup     what joins all parts: imports.py as modules are imported, pytorch.py once torch is, first.py at the root's
//	          first call, last.py at the end of the process
//	guard     passes that ran out of memory, done again: inplace.py; proof.py proves that one may be repeated,
//	          optimizerstep.py does so with the optimizer's step, beforeloss.py with a forward before a large loss;
//	          pressure.py tries a remedy where the allocator retries in step after step; questions.py asks a process that ends
//	remedies  recomputation, parts of the batch or of the loss, host memory, attention, precision, a file for each:
//	          rungs.py lists them; remedy.py is the base class of those for a call that ran out of memory; states.py,
//	          visits.py and hosttensors.py keep the optimizer's states in host memory
//	observe   calls.py and the frameworks' files: settings, and orders that change an argument in the job's code;
//	          loaders.py, batches.py, backward.py, loss.py and lossgraph.py: batches, the scale of the loss, and what it
//	          selects; memory.py, steps.py, pace.py, snapshot.py: memory.json, the file steps, a rank's own share, and
//	          the allocator
//	model     root.py, the module that is trained, at its first call, and rootcalls.py, all later ones; blocks.py, its
//	          repeated blocks; exclusions.py, models that are left alone; forwards.py, how the hook gets between a module
//	          and its forward; places.py, reach.py and the files of states: what a forward changes beside its output
//	base      rank.py, which process is the rank; process.py, process.json; session.py, what all parts share; wall.py, the
//	          wall between the job's code and the hook: an error of the hook is not the job's; report.py, how files are
//	          written; masked.py, no secret is in a file
//
// # What the hook promises
//
// Until torch is imported, Python runs as if the hook were not there. The
// sitecustomize that would have been found is loaded, PYTHONPATH, sys.path and
// sys.modules are as without the hook when the script starts, and sys.excepthook still
// is sys.__excepthook__. It imports nothing that Python does not import by itself and
// takes less than a millisecond, since the compiled modules are kept in the user's cache folder
// for all attempts and runs; and as long again once torch is there. A finder in front of
// sys.meta_path looks names up in a dictionary until the first optimizer step.
//
// Listeners are removed as soon as they are done: at the root's first call, or after the first
// three optimizer steps. What stays is one hook that counts steps, and one that compares the size
// of the root's input with the largest so far: some ten microseconds a step, and two lines in a
// traceback through the root. In a job of several ranks two more add as much, and a line, for the
// rank's own share of a step. The step of a longer input is measured. torch.compile makes the same
// of the job; of a compiled root only steps and their peaks are reported.
//
// Nothing that the job can read is reset: PyTorch's peaks are what they would be, unless a
// pass that ran out of memory was done again, which would have ended the job. So the peak of a phase is known only if
// it is a new maximum of the process. An error in the hook is noted in process.json, and its traceback is in
// hook-error.txt. The hook is off from then on in this process, except for remedies that are on and the count of
// steps, and the job gets what it would have got: see wall.py.
//
// The rank is the first Python process below gpurun's child that runs the job's script
// or module, behind any wrapper. A wrapper that is Python itself keeps gpurun's
// variables for the processes below it and is otherwise as if the hook were not there. Of a
// program that gpurun cannot name it is the first process that trains.
//
// The rank reports its end, and so does each Python process below a shell that imports
// torch, with whether it trained (probe-123.json): a shell can end with 0 after a training
// that failed. A fork of them and a thread report none. SystemExit and KeyboardInterrupt are
// no failures there. A process that only loads data writes nothing. Programs follows all
// Python processes below a shell to their ends, those without the hook too.
//
// A report is certain, or absent: a loader's batch size is reported where the model was
// seen to be given so many samples, accumulation where two steps in a row took as many
// batches, and nothing where a framework's setting contradicts what was seen.
//
// # Limits
//
//   - Nothing is written under python -S, -E, -I or -i, and by other programs.
//   - A rank below a shell that the job's own Python starts is not followed, since its
//     environment is no longer gpurun's; one below a shell that gpurun starts is.
//   - Where a script's own excepthook neither calls the one before it nor
//     sys.__excepthook__, probe.json is written as the last atexit function runs.
//   - A finally clause that hangs ends no exception: neither the hook nor @record
//     notices it, nor does the output.
//   - os._exit, a signal and a crash in native code leave no probe.json: the exit shows them.
//   - A model that is only called inside a compiled function is not seen, nor is one
//     that is called by methods other than its forward; their steps are.
//   - Python before 3.8, and PyPy, are left alone.
package hook

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/gpurun/gpurun/launcher/mask"
	"github.com/gpurun/gpurun/launcher/system"
)

// hook is the Python package.
//
//go:embed sitecustomize.py inside/*/*.py
var hook embed.FS

// The files in a rank's folder. Those of a process that the job started itself have its number
// in their names: process-123.json.
const (
	probeFile   = "probe.json"
	errorFile   = "error.json" // TORCHELASTIC_ERROR_FILE
	processFile = "process.json"
	memoryFile  = "memory.json"
	stepsFile   = "steps"
)

// The variables of the hook.
const (
	fileVariable   = "GPURUN_PROBE_FILE"   // probe.json; without it the hook does nothing
	namesVariable  = "GPURUN_PROBE_NAMES"  // variables whose values are reported with the end
	ordersVariable = "GPURUN_PROBE_ORDERS" // the file of the orders
	// secretsVariable is a list in JSON. It is no file, so that no secret is in the run directory.
	secretsVariable = "GPURUN_PROBE_SECRETS"
)

// Install puts the hook into a new folder below the attempt's, whose name
// cannot be guessed and which only the user can write to: Python runs what it finds
// there, a compiled file in its __pycache__ first. The ranks carry out the orders. The report
// of a rank's end includes the values that the variables in names then have: see Environ.
//
// An error means that the ranks run without the hook.
func Install(dir string, orders Orders, names ...string) (*Installed, error) {
	return (*Installed)(nil).Next(dir, orders, names...)
}

// Next installs the hook as Install does, for a later attempt of the same run. It links the Python files of p, which
// may be nil, instead of writing them: creating a file takes much longer, above all on a network's file system.
func (p *Installed) Next(dir string, orders Orders, names ...string) (*Installed, error) {
	before := ""
	if p != nil {
		before = p.folder
	}
	next, err := install(dir, before, orders)
	if err != nil {
		return nil, fmt.Errorf("install gpurun's hook: %w", err)
	}
	next.names = strings.Join(names, ",")
	return next, nil
}

func install(dir, before string, orders Orders) (*Installed, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	if strings.ContainsRune(dir, os.PathListSeparator) {
		return nil, fmt.Errorf("PYTHONPATH cannot hold %q, which contains a colon", dir)
	}
	folder, err := system.MkdirTemp(dir, "probe-*")
	if err != nil {
		return nil, err
	}
	if err := plantParts(folder, before); err != nil {
		return nil, err
	}
	text, err := orders.text()
	if err == nil {
		err = plant(filepath.Join(folder, ordersFile), text)
	}
	return &Installed{dir: dir, folder: folder}, err
}

// partsFile has all modules of the folder inside, since a network's file system takes milliseconds to create a file:
// a line with the place and the size of each, then their texts. Its name is no module's: Python without its site
// module (-S) looks for modules in the folder, and none there may shadow another.
const partsFile = "parts"

// A plantedFile is a file in the hook's folder: a first line, and files of the package.
type plantedFile struct {
	name, head string
	texts      []string // names in hook
	size       int64
}

// plantedFiles lists the Python files.
func plantedFiles() ([]plantedFile, error) {
	start, parts := plantedFile{name: "sitecustomize.py",
		texts: []string{"sitecustomize.py"}}, plantedFile{name: partsFile, head: "{"}
	info, err := fs.Stat(hook, start.name)
	if err != nil {
		return nil, err
	}
	start.size = info.Size()
	add := func(name string, size int64) {
		parts.head += fmt.Sprintf("%q: (%d, %d), ", strings.TrimSuffix(path.Base(name), ".py"), parts.size, size)
		parts.texts = append(parts.texts, name)
		parts.size += size
	}
	err = fs.WalkDir(hook, "inside", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || entry.Name() == "__init__.py" { // which is for tests and linters
			return err
		}
		info, err := entry.Info()
		if err == nil {
			add(name, info.Size())
		}
		return err
	})
	add(rulesPart, int64(len(rulesText())))
	parts.head += "}\n"
	parts.size += int64(len(parts.head))
	return []plantedFile{start, parts}, err
}

// copyTo writes the file's content.
func (f plantedFile) copyTo(to io.Writer) error {
	_, err := io.WriteString(to, f.head)
	for _, name := range f.texts {
		if err != nil {
			break
		}
		text := rulesText()
		if name != rulesPart {
			text, err = hook.ReadFile(name)
		}
		if err == nil {
			_, err = to.Write(text)
		}
	}
	return err
}

// rulesPart is the module with the rules of package mask.
const rulesPart = "inside/base/rules.py"

var rulesText = sync.OnceValue(func() []byte {
	var text bytes.Buffer
	text.WriteString("RULES = ")
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	_ = encoder.Encode(mask.Rules())
	return text.Bytes()
})

// plantParts writes the Python files, or links those of an earlier folder, empty for none. Their compiled forms
// are kept for all attempts and runs where that is safe.
func plantParts(folder, before string) error {
	files, err := plantedFiles()
	digest := sha256.New()
	for _, f := range files {
		path := filepath.Join(folder, f.name)
		if before != "" && link(filepath.Join(before, f.name), path, f.size) {
			err = errors.Join(err, f.copyTo(digest))
			continue
		}
		planted := plantBy(path, func(to io.Writer) error { return f.copyTo(io.MultiWriter(to, digest)) })
		err = errors.Join(err, planted, os.Chtimes(path, sourceTime, sourceTime))
	}
	if err != nil {
		return err
	}
	compiled, err := compiledFolder(hex.EncodeToString(digest.Sum(nil)[:16]))
	if err != nil { // Python compiles the parts in each attempt
		return system.Mkdir(filepath.Join(folder, "__pycache__"))
	}
	return os.Symlink(compiled, filepath.Join(folder, "__pycache__"))
}

// link links a file that plantParts wrote, and reports whether it did: nothing has written to it since, and only the
// user can.
func link(from, path string, size int64) bool {
	if os.Link(from, path) != nil {
		return false
	}
	if info, err := os.Lstat(path); err == nil && info.Size() == size && info.ModTime().Equal(sourceTime) &&
		system.CheckOwn(path) == nil {
		return true
	}
	_ = os.Remove(path) // if it stays, plant reports that
	return false
}

// sourceTime is the time of the Python files. A compiled form belongs to a source
// of the same time and size, and the folder's name has the digest of all of them.
var sourceTime = time.Unix(1_000_000_000, 0)

// compiledFolder is where each version of Python keeps the compiled files. Only the user may
// write to it, since Python runs what it finds there; the error is why it cannot be trusted, or
// made.
func compiledFolder(digest string) (string, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	if _, err := os.Stat(filepath.Dir(cache)); err != nil {
		return "", err // there is no home to make one in
	}
	folder := filepath.Join(cache, "gpurun", "probe-"+digest)
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return "", err
	}
	if err := system.CheckOwner(cache); err != nil {
		return "", err
	}
	for _, path := range []string{filepath.Dir(folder), folder} {
		if err := system.CheckOwn(path); err != nil {
			return "", err
		}
	}
	return folder, nil
}

// plant writes a file that is not there yet.
func plant(path string, text []byte) error {
	return plantBy(path, func(to io.Writer) error { _, err := to.Write(text); return err })
}

// plantBy makes a file that is not there yet, with the content that write writes.
func plantBy(path string, write func(io.Writer) error) error {
	f, err := system.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY)
	if err != nil {
		return err
	}
	return errors.Join(write(f), f.Close())
}

// rankFolder has a rank's files: its logs and its reports.
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
