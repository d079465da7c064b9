// Package python finds and runs the job's interpreter: where it is, and why that one; its
// packages and their versions; where it finds files among them; and what a job will need of
// it, by small programs that are run as ranks are (Trial).
//
// Its output is kept for the life of this process. Listing the packages takes a tenth of a
// second and more, so that it is only done once something depends on it.
package python

import (
	"bytes"
	"context"
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gpurun/gpurun/launcher/commandline"
	"github.com/gpurun/gpurun/launcher/ranks"
)

// describe prints an interpreter's version and folders; with the argument "packages" its
// packages, too. It imports nothing of the job's.
//
//go:embed describe.py
var describe string

const (
	// bound is how long an interpreter may take to answer.
	bound = 30 * time.Second
	// importBound is the bound if a program imports what the job imports: from a network file system, or on
	// a busy machine, PyTorch alone takes minutes.
	importBound = 5 * time.Minute
	// installBound is the bound if a wrapper such as uv run first installs missing packages. Ending that
	// half-way does harm, and the job would wait for it too.
	installBound = 15 * time.Minute
	// largest is how much of an interpreter's output is read, in bytes; a thousand packages
	// are some 50 kB.
	largest = 4 << 20
	// holdBound is how long to wait for its output after it has ended, where something that
	// it started holds it open.
	holdBound = time.Second
)

// An Interpreter is one Python, in one environment and one working directory. Its
// methods may be called from several goroutines; what they return must not be changed.
type Interpreter struct {
	command []string // its path, or the words of wrappers and the interpreter's name
	dir     string
	env     commandline.Environ
	bound   time.Duration

	running chan struct{} // holds a token while the interpreter runs; guards answers
	answers map[[sha256.Size]byte]programAnswer
	listed  atomic.Pointer[string] // what it printed with its packages
}

// A programAnswer is the output of a program, or why there is none.
type programAnswer struct {
	text string
	err  error
}

// A description is the output of describe.py.
type description struct {
	Version  string            `json:"version"`
	Path     []string          `json:"path"`
	Packages map[string]string `json:"packages"`
}

// interpreters are those that this process has used.
var interpreters = struct {
	sync.Mutex
	used map[string]*Interpreter
}{used: map[string]*Interpreter{}}

// At is the interpreter at an absolute path, as it runs in a directory with an
// environment. It is not run yet.
func At(path, dir string, env commandline.Environ) *Interpreter {
	return Through([]string{path}, dir, env, false)
}

// Through is the interpreter that a wrapper finds: words are the wrapper's, and the
// interpreter's name. Where installs is set, its first run may take minutes.
func Through(words []string, dir string, env commandline.Environ, installs bool) *Interpreter {
	key := fmt.Sprintf("%q %q %q", words, dir, env.Words())
	interpreters.Lock()
	defer interpreters.Unlock()
	if i := interpreters.used[key]; i != nil {
		return i
	}
	i := &Interpreter{
		command: slices.Clone(words), dir: dir, env: env.With(), bound: bound,
		running: make(chan struct{}, 1), answers: map[[sha256.Size]byte]programAnswer{},
	}
	if installs {
		i.bound = installBound
	}
	interpreters.used[key] = i
	return i
}

// Path is where the interpreter is; the words that start it, where a wrapper finds it.
func (i *Interpreter) Path() string { return strings.Join(i.command, " ") }

// Packages are the versions of its packages, by name in lower case. The error is that it
// cannot be run, takes longer than half a minute, is older than Python 3.8, or of ctx.
func (i *Interpreter) Packages(ctx context.Context) (map[string]string, error) {
	d, err := i.describe(ctx, true)
	if err == nil && d.Packages == nil {
		err = errors.New("it cannot list them (importlib.metadata came with Python 3.8)")
	}
	if err != nil {
		return nil, fmt.Errorf("query %s for its packages: %w", i.Path(), err)
	}
	return d.Packages, nil
}

// Version is its version, such as "3.12.4".
func (i *Interpreter) Version(ctx context.Context) (string, error) {
	d, err := i.describe(ctx, false)
	if err != nil {
		return "", fmt.Errorf("query %s for its version: %w", i.Path(), err)
	}
	return d.Version, nil
}

// Files are where it finds files of its packages, in the order of names; empty
// where it has no such file. The working directory is none of its folders, unless
// PYTHONPATH names it.
func (i *Interpreter) Files(ctx context.Context, names ...string) ([]string, error) {
	d, err := i.describe(ctx, false)
	if err != nil {
		return nil, fmt.Errorf("query %s for the place of %s: %w", i.Path(), strings.Join(names, ", "), err)
	}
	files := make([]string, len(names))
	for k, name := range names {
		for _, folder := range d.Path {
			path := filepath.Join(folder, name)
			if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() {
				files[k] = path
				break
			}
		}
	}
	return files, nil
}

// ReadFile reads a file among its packages. The error is an fs.ErrNotExist where
// it has none.
func (i *Interpreter) ReadFile(ctx context.Context, name string) ([]byte, error) {
	files, err := i.Files(ctx, name)
	if err != nil {
		return nil, err
	}
	if files[0] == "" {
		return nil, fmt.Errorf("%s is not among the packages of %s: %w", name, i.Path(), fs.ErrNotExist)
	}
	return os.ReadFile(files[0])
}

// describe runs describe.py. Once the packages are known, that answer serves for all.
func (i *Interpreter) describe(ctx context.Context, packages bool) (d description, err error) {
	words := []string{"-c", i.program(describe)}
	if packages {
		words = append(words, "packages")
	}
	listed := i.listed.Load()
	if listed == nil {
		text, err := i.once(ctx, nil, words...)
		if err != nil {
			return d, err
		}
		listed = &text
		if packages {
			i.listed.Store(listed)
		}
	}
	_, last := cutLastLine(*listed) // what a sitecustomize prints comes before
	if err := json.Unmarshal([]byte(last), &d); err != nil || d.Version == "" {
		return d, errors.New("its output is not an answer of Python")
	}
	return d, nil
}

// fromInput runs the program that is the beginning of its standard input, after its length:
// ps would show a program that is an argument.
const fromInput = "import sys; exec(sys.stdin.buffer.read(int(sys.stdin.buffer.readline())))"

// Output runs a program that imports nothing but what comes with Python, with some bytes on
// its standard input, and returns what it prints, up to 4 MiB. It is isolated from the job:
// it does not see the working directory, the variables for Python and the packages. The same
// program with the same input is run once. The error is that it cannot be run, fails, or takes
// longer than half a minute, or of ctx.
func (i *Interpreter) Output(ctx context.Context, program string, in []byte) ([]byte, error) {
	in = slices.Concat(fmt.Appendf(nil, "%d\n", len(program)), []byte(program), in)
	text, err := i.once(ctx, in, "-I", "-S", "-c", i.program(fromInput))
	if err != nil {
		err = fmt.Errorf("ask %s: %w", i.Path(), err)
	}
	return []byte(text), err
}

// OutputWithPackages is Output in the run that lists the packages, which Packages then knows. The
// program sees the job's variables, and imports nothing but what comes with Python.
func (i *Interpreter) OutputWithPackages(ctx context.Context, program string, in []byte) ([]byte, error) {
	in = slices.Concat(fmt.Appendf(nil, "%d\n", len(program)), []byte(program), in)
	text, err := i.once(ctx, in, "-c", i.program(describe), "packages", "program")
	if err != nil {
		return nil, fmt.Errorf("ask %s: %w", i.Path(), err)
	}
	i.listed.Store(&text)
	printed, _ := cutLastLine(text)
	return []byte(printed), nil
}

// cutLastLine splits a text before its last line that is not empty.
func cutLastLine(text string) (before, last string) {
	text = strings.TrimRight(text, "\n")
	at := strings.LastIndexByte(text, '\n') + 1
	return text[:at], text[at:]
}

// OutputInJob runs a program as a script of the job would run, with some more variables: the
// job's packages are there, its working directory is not among the folders that it imports
// from. It returns what the program prints, up to 4 MiB; errors are as in Output.
func (i *Interpreter) OutputInJob(ctx context.Context, program string, set map[string]string) (string, error) {
	limited, cancel := context.WithTimeout(ctx, max(i.bound, importBound))
	defer cancel()
	inside := &Interpreter{command: i.command, dir: i.dir, env: i.env.With(set)}
	text, err := inside.output(limited, nil, "-c",
		i.program("import sys; sys.path[:] = [p for p in sys.path if p]\n"+program))
	if err != nil {
		return "", fmt.Errorf("ask %s: %w", i.Path(), err)
	}
	return text, nil
}

// once runs the interpreter with some words and bytes on its standard input, unless that was
// done before, and returns what it prints.
func (i *Interpreter) once(ctx context.Context, in []byte, words ...string) (string, error) {
	select {
	case i.running <- struct{}{}:
		defer func() { <-i.running }()
	case <-ctx.Done():
		return "", context.Cause(ctx)
	}
	key := sha256.Sum256(fmt.Appendf(nil, "%q %s", words, in))
	if known, there := i.answers[key]; there {
		return known.text, known.err
	}
	limited, cancel := context.WithTimeout(ctx, i.bound)
	defer cancel()
	text, err := i.output(limited, in, words...)
	switch {
	case ctx.Err() != nil:
		return "", context.Cause(ctx) // it may answer another time
	case limited.Err() != nil:
		err = fmt.Errorf("it has not answered after %s", i.bound)
	}
	i.answers[key] = programAnswer{text, err}
	return text, err
}

// Command is the command line that runs a program in the interpreter with some words as its
// arguments, its working directory and its environment.
func (i *Interpreter) Command(program string, words ...string) (argv []string, dir string, env commandline.Environ) {
	return slices.Concat(i.command, []string{"-c", i.program(program)}, words), i.dir, i.env.With()
}

// program encodes a program for a wrapper: conda run refuses words with line breaks, and
// others read words once more as a shell does.
func (i *Interpreter) program(text string) string {
	if len(i.command) == 1 {
		return text
	}
	return "import base64;exec(base64.b64decode('" + base64.StdEncoding.EncodeToString([]byte(text)) + "'))"
}

// output runs the interpreter with some words and returns what it prints. When ctx is
// done, the interpreter and what it started are killed.
func (i *Interpreter) output(ctx context.Context, in []byte, words ...string) (string, error) {
	first, err := Finder{Dir: i.dir, Env: i.env}.InPath(i.command[0])
	if err != nil {
		return "", err
	}
	argv := slices.Concat([]string{first}, i.command[1:], words)
	if ctx.Value(guardedKey{}) != nil && ranks.CheckProcesses() == nil {
		return i.outputGuarded(ctx, in, argv)
	}
	out, errs := &limitedBuffer{}, &limitedBuffer{}
	cmd := exec.CommandContext(ctx, first, argv[1:]...)
	cmd.Dir, cmd.Env, cmd.Stdout, cmd.Stderr = i.dir, i.env.Words(), out, errs
	if in != nil {
		cmd.Stdin = bytes.NewReader(in)
	}
	err = runInGroup(cmd)
	switch {
	case out.full || errs.full:
		return "", errTooMuch
	case errors.Is(err, exec.ErrWaitDelay): // it has ended well, and its output is complete
	case err != nil:
		return "", withReason(err, errs.text.String())
	}
	return out.text.String(), nil
}

// runInGroup runs a command in its own process group, which ends with the command's context.
// The command itself ends with this process, too, however that ends.
func runInGroup(cmd *exec.Cmd) error {
	runtime.LockOSThread() // Pdeathsig is sent when the thread ends that has started it
	defer runtime.UnlockOSThread()
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	cmd.Cancel = func() error {
		err := syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		if errors.Is(err, syscall.ESRCH) {
			return os.ErrProcessDone
		}
		return err
	}
	cmd.WaitDelay = holdBound
	return cmd.Run()
}

type guardedKey struct{}

// Guarded makes all interpreters that are started with the context run as ranks are: nothing
// that they start is left, neither when their time is over nor when gpurun is killed.
// Otherwise what has left the interpreter's process group continues.
func Guarded(ctx context.Context) context.Context {
	return context.WithValue(ctx, guardedKey{}, true)
}

// outputGuarded runs a command as a rank, and returns what it prints.
func (i *Interpreter) outputGuarded(ctx context.Context, in []byte, argv []string) (string, error) {
	rank := ranks.Rank{Argv: argv, Dir: i.dir, Env: i.env.Words()}
	if in != nil {
		f, err := ranks.InMemory(in)
		if err != nil {
			return "", err
		}
		defer f.Close()
		rank.Stdin = f
	}
	all, err := ranks.RunBeside(ctx, []ranks.Rank{rank})
	switch {
	case err != nil:
		return "", err
	case all[0].Signal != 0:
		return "", withReason(fmt.Errorf("ended by %s", unix.SignalName(unix.Signal(all[0].Signal))), all[0].Err)
	case all[0].Code != 0:
		return "", withReason(fmt.Errorf("ended with code %d", all[0].Code), all[0].Err)
	}
	return all[0].Out, nil
}

// withReason adds the last line that a program wrote about its failure.
func withReason(err error, text string) error {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	if last := strings.TrimSpace(lines[len(lines)-1]); last != "" {
		return fmt.Errorf("%w: %s", err, last)
	}
	return err
}

// errTooMuch ends an interpreter that prints without end.
var errTooMuch = errors.New("it prints more than an answer")

// A limitedBuffer keeps at most largest bytes. It does not embed bytes.Buffer, whose ReadFrom would read to
// the end.
type limitedBuffer struct {
	text bytes.Buffer
	full bool
}

// Write fails once the limit is reached: SIGPIPE then ends the writer at the other end.
func (b *limitedBuffer) Write(p []byte) (int, error) {
	if b.text.Len()+len(p) > largest {
		b.full = true
		return 0, errTooMuch
	}
	return b.text.Write(p)
}
