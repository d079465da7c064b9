package ranks

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sys/unix"
	"golang.org/x/term"

	"github.com/gpurun/gpurun/launcher/lazy"
	"github.com/gpurun/gpurun/launcher/system"
	"github.com/gpurun/gpurun/strategy"
)

// Output carries the ranks' output to the console, to one file a stream, and to facts.
//
// # One stream
//
// Each rank has a pipe for stdout and one for stderr. One goroutine per pipe drains it, so that
// a rank never blocks on gpurun. The bytes then go to
//
//   - a log file, unchanged, through a bounded queue with its own goroutine
//   - the console, through a bounded queue that both streams may share
//   - a cause.Scanner, and the search for the job's steps
//
// A full queue delays a reader for a bounded time (see patience); after that its bytes are
// dropped and counted, and a note of the loss takes their place. Files and facts continue while
// the console is stopped or closed, and the console and facts continue while a disk is full.
//
// # The console
//
// The bytes of a single rank pass unchanged. The output of several ranks is cut into units: a
// unit ends after a newline or before the carriage return that redraws the line, and an
// unfinished unit is shown after 100 ms. If a unit of one rank would follow the unfinished line
// of another, a newline is inserted; nothing else is added, except the prefix of Tee.
//
// gpurun's own messages do not pass here, but through Messages.

// DefaultMaxBytes is the cap of one log file where Options.MaxBytes is 0.
const DefaultMaxBytes = 256 << 20

// AllRanks is the key of Options.Redirect and Options.Tee for all local ranks without an entry.
const AllRanks = -1

// StreamSet is a set of a rank's streams; the numbers are torchrun's.
type StreamSet uint8

// The bits of StreamSet.
const (
	Stdout StreamSet = 1
	Stderr StreamSet = 2
	Both             = Stdout | Stderr
)

// OutputOptions define where the ranks' output goes.
type OutputOptions struct {
	// Ranks are the global ranks on this node, in the order of local ranks.
	Ranks []int
	// Dir is the attempt's folder: rank k writes Dir/rank<k>/{stdout,stderr}.log.
	Dir string
	// Stdout and Stderr are the console; nil shows nothing. They may be the same.
	// The program must handle SIGPIPE (signal.Notify), or a closed console ends it: that is
	// Go's rule for descriptors 1 and 2.
	Stdout, Stderr io.Writer
	// Screen owns the terminal that the console is; nil for none.
	Screen *Screen
	// Redirect keeps streams off the console, by local rank (torchrun's -r).
	Redirect map[int]StreamSet
	// Tee shows streams with a prefix on each line, by local rank (torchrun's -t). It
	// overrides Redirect, as in torchrun.
	Tee map[int]StreamSet
	// Filter lists the local ranks that are shown on the console; nil: all.
	Filter []int
	// Role and Template make the prefix of Tee. The template is that of
	// TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE, empty for DefaultTemplate.
	Role, Template string
	// Group and Restarts are ${group_rank} and ${restart_count} of the template.
	Group, Restarts int
	// Step finds a training step in a line; its first group is the step's number.
	Step *regexp.Regexp
	// Observe finds a setting that the job prints in a line; nil: none. It is called for the
	// first MiB of each stream, from several goroutines.
	Observe func(line string) (strategy.ObservedSetting, bool)
	// MaxBytes caps a log file: its head and its tail are kept and the cut is
	// marked. 0: DefaultMaxBytes; negative: no cap.
	MaxBytes int64
	// TTY gives the only rank of this node a pseudo-terminal for each stream; where the
	// system has none, a fact names the gap.
	TTY bool
	// OnFact gets every fact, from one goroutine, the last one before Wait
	// returns. It may block, but must not wait for the goroutine that called Wait.
	OnFact func(strategy.Fact)
}

// Output is the output of one attempt's ranks on this node.
type Output struct {
	opts     OutputOptions
	ranks    []*rank
	consoles []*console // one, or two where stdout and stderr are different files
	facts    *facts

	mu     sync.Mutex
	theirs []*os.File // write ends that are still open here; guarded by mu

	waiting sync.Once
	err     error // of Wait
}

// OpenOutput creates the files and the pipes, and starts to read. The caller must call Wait, even if
// no rank was started. Errors come from the attempt's folder and the limit of descriptors.
func OpenOutput(o OutputOptions) (*Output, error) {
	if o.MaxBytes == 0 {
		o.MaxBytes = DefaultMaxBytes
	}
	if o.Step != nil && stepPattern(o.Step).Step == 0 {
		return nil, fmt.Errorf("step pattern %q has no group for the step's number", o.Step)
	}
	out := &Output{opts: o, facts: newFacts(o.OnFact)}
	stdout, stderr := out.openConsoles()
	alone := out.shown() <= 1
	for local, global := range o.Ranks {
		r := &rank{global: global, local: local, step: o.Step, observe: o.Observe, facts: out.facts}
		out.ranks = append(out.ranks, r)
		for i, c := range []*console{stdout, stderr} {
			if err := out.openStream(r, i, c, alone); err != nil {
				return nil, errors.Join(err, out.undo())
			}
		}
	}
	for _, r := range out.ranks {
		for _, s := range r.streams {
			go s.run()
		}
	}
	return out, nil
}

// openConsoles starts one console, or two if stdout and stderr are different files. With one,
// both streams keep their order.
func (o *Output) openConsoles() (stdout, stderr *console) {
	to, errs := o.opts.Screen.On(o.opts.Stdout), o.opts.Screen.On(o.opts.Stderr)
	if sameFile(o.opts.Stdout, o.opts.Stderr) {
		c := newConsole(o.opts.Dir, to, errs, nil)
		o.consoles = []*console{c}
		return c, c
	}
	stderr = newConsole(o.opts.Dir, nil, errs, nil)
	stdout = newConsole(o.opts.Dir, to, nil, stderr)
	o.consoles = []*console{stdout, stderr}
	return stdout, stderr
}

// sameFile reports whether two writers are the same writer or the same file, such as a terminal
// or the pipe of 2>&1.
func sameFile(a, b io.Writer) bool {
	if reflect.ValueOf(a).Comparable() && reflect.ValueOf(b).Comparable() && a == b {
		return true
	}
	fa, aok := a.(*os.File)
	fb, bok := b.(*os.File)
	if !aok || !bok {
		return false
	}
	ia, err := fa.Stat()
	if err != nil {
		return false
	}
	ib, err := fb.Stat()
	return err == nil && os.SameFile(ia, ib)
}

// openStream makes the pipe, the file and the reader of one stream of a rank;
// i is 0 for stdout and 1 for stderr.
func (o *Output) openStream(r *rank, i int, c *console, alone bool) error {
	name := [...]string{"stdout", "stderr"}[i]
	dir := filepath.Join(o.opts.Dir, "rank"+strconv.Itoa(r.global))
	if err := errors.Join(system.MkdirAll(o.opts.Dir), system.Mkdir(dir)); err != nil {
		return fmt.Errorf("create the folder of rank %d: %w", r.global, err)
	}
	log, err := openLog(filepath.Join(dir, name+".log"), max(o.opts.MaxBytes, 0), o.note)
	if err != nil {
		return fmt.Errorf("create the log of rank %d: %w", r.global, err)
	}
	read, write, err := o.openEnds()
	if err != nil {
		return errors.Join(fmt.Errorf("open %s of rank %d: %w", name, r.global, err), log.close(time.Now().Add(logClose)))
	}
	s := newStream(r, name, read, log)
	if shown, prefixed := o.route(r.local, StreamSet(1)<<i); shown != 0 {
		prefix := ""
		if prefixed != 0 {
			prefix = o.prefix(r)
		}
		s.view = newView(c, i, s, prefix, alone)
	}
	r.streams[i] = s
	o.theirs = append(o.theirs, write)
	return nil
}

// openEnds opens a pipe, or a pseudo-terminal where that is wanted and possible.
func (o *Output) openEnds() (read, write *os.File, err error) {
	if o.opts.TTY && len(o.opts.Ranks) == 1 {
		read, write, err = openPTY(o.terminal())
		if err == nil {
			return read, write, nil
		}
		o.facts.emit(strategy.Fact{Time: time.Now(), Rank: -1, Source: "gpurun",
			Content: strategy.Gap("no pseudo-terminal: " + err.Error())})
	}
	return openPipe()
}

// route returns which of some streams of a local rank are shown on the console, and which of
// those with a prefix.
func (o *Output) route(local int, s StreamSet) (shown, prefixed StreamSet) {
	if o.opts.Filter != nil && !slices.Contains(o.opts.Filter, local) {
		return 0, 0
	}
	prefixed = s & chooseStreams(o.opts.Tee, local)
	return prefixed | s&^chooseStreams(o.opts.Redirect, local), prefixed
}

// shown counts the ranks that have a stream on the console.
func (o *Output) shown() (n int) {
	for local := range o.opts.Ranks {
		if streams, _ := o.route(local, Both); streams != 0 {
			n++
		}
	}
	return n
}

func chooseStreams(m map[int]StreamSet, local int) StreamSet {
	if s, ok := m[local]; ok {
		return s
	}
	return m[AllRanks]
}

// Files returns the write ends of a rank for its process; nil for a rank of another node, and
// after Started.
func (o *Output) Files(rank int) (stdout, stderr *os.File) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for i, global := range o.opts.Ranks {
		if global == rank && len(o.theirs) == 2*len(o.ranks) {
			return o.theirs[2*i], o.theirs[2*i+1]
		}
	}
	return nil, nil
}

// Started closes gpurun's write ends, once the ranks have theirs: from now on a stream ends with
// the last process that holds one.
func (o *Output) Started() {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, f := range o.theirs {
		f.Close() // Nothing was written through it here.
	}
	o.theirs = nil
}

// Wait reads until every stream has ended, or until ctx ends because a remaining process still
// holds one; what that process has written so far is kept. Then it writes the rest, emits the
// last facts, with a Progress for each rank that had steps, and closes all that Open opened. It
// calls Started. The error is that of writing the log files. A console that blocks is left
// behind after a bounded time.
func (o *Output) Wait(ctx context.Context) error {
	o.waiting.Do(func() {
		o.Started()
		stop := context.AfterFunc(ctx, o.interrupt)
		for _, r := range o.ranks {
			for _, s := range r.streams {
				<-s.done
			}
		}
		stop()
		o.err = o.finish()
	})
	return o.err
}

// interrupt makes every reader read what is available and end.
func (o *Output) interrupt() {
	for _, r := range o.ranks {
		for _, s := range r.streams {
			s.interrupt()
		}
	}
}

// finish closes the logs, the consoles and the facts, in this order: the console reports errors
// of the logs.
func (o *Output) finish() error {
	var errs []error
	until := time.Now().Add(logClose)
	for _, r := range o.ranks {
		for _, s := range r.streams {
			if s != nil {
				errs = append(errs, s.log.close(until))
			}
		}
	}
	for _, c := range o.consoles { // stdout first: stderr reports its errors
		c.close()
	}
	for _, r := range o.ranks {
		r.finish()
	}
	o.facts.close()
	return errors.Join(errs...)
}

// undo closes everything after an Open that failed.
func (o *Output) undo() error {
	o.Started()
	for _, r := range o.ranks {
		for _, s := range r.streams {
			if s != nil {
				s.pipe.Close() // No reader was started.
			}
		}
	}
	return o.finish()
}

// note prints a message on the console's stderr.
func (o *Output) note(text string) {
	o.consoles[len(o.consoles)-1].note(text)
}

// openPipe opens a pipe whose read end can be interrupted and whose write end
// blocks, as a child expects: os.Pipe would make both ends non-blocking, and the
// flag would reach the child.
func openPipe() (read, write *os.File, err error) {
	var fds [2]int
	if err := unix.Pipe2(fds[:], unix.O_CLOEXEC); err != nil {
		return nil, nil, fmt.Errorf("open a pipe: %w", err)
	}
	if err := unix.SetNonblock(fds[0], true); err != nil {
		unix.Close(fds[0])
		unix.Close(fds[1])
		return nil, nil, fmt.Errorf("make a pipe interruptible: %w", err)
	}
	return os.NewFile(uintptr(fds[0]), "pipe"), os.NewFile(uintptr(fds[1]), "pipe"), nil
}

// openPTY opens a pseudo-terminal with the size of the given terminal, if any. It passes bytes
// unchanged: the real terminal translates newlines, and the log gets what the rank wrote.
//
// Package creack/pty is not suitable: File.Fd makes its descriptors blocking, so that a read of
// the rank's terminal could not be interrupted, and it sets the size of a file that another
// goroutine may be closing.
func openPTY(size *os.File) (read, write *os.File, err error) {
	master, err := unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("open /dev/ptmx: %w", err)
	}
	slave, err := openSlave(master)
	if err != nil {
		unix.Close(master)
		return nil, nil, err
	}
	read, write = os.NewFile(uintptr(master), "ptmx"), os.NewFile(uintptr(slave), "pts")
	if size != nil {
		if err := copySize(read, size); err != nil {
			read.Close()
			write.Close()
			return nil, nil, err
		}
	}
	return read, write, nil
}

// openSlave opens the other end of a pseudo-terminal.
func openSlave(master int) (int, error) {
	if err := unix.IoctlSetPointerInt(master, unix.TIOCSPTLCK, 0); err != nil {
		return 0, fmt.Errorf("unlock a pseudo-terminal: %w", err)
	}
	n, err := unix.IoctlGetInt(master, unix.TIOCGPTN)
	if err != nil {
		return 0, fmt.Errorf("number a pseudo-terminal: %w", err)
	}
	path := "/dev/pts/" + strconv.Itoa(n)
	slave, err := unix.Open(path, unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	if err != nil {
		return 0, fmt.Errorf("open %s: %w", path, err)
	}
	mode, err := unix.IoctlGetTermios(slave, unix.TCGETS)
	if err == nil {
		mode.Oflag &^= unix.OPOST
		err = unix.IoctlSetTermios(slave, unix.TCSETS, mode)
	}
	if err != nil {
		unix.Close(slave)
		return 0, fmt.Errorf("set up %s: %w", path, err)
	}
	return slave, nil
}

func copySize(to, from *os.File) error {
	var size *unix.Winsize
	err := control(from, func(fd int) (err error) {
		size, err = unix.IoctlGetWinsize(fd, unix.TIOCGWINSZ)
		return err
	})
	if err != nil {
		return fmt.Errorf("read the terminal's size: %w", err)
	}
	err = control(to, func(fd int) error { return unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, size) })
	if err != nil {
		return fmt.Errorf("set the pseudo-terminal's size: %w", err)
	}
	return nil
}

// control runs f on a file's descriptor and leaves its mode alone, as File.Fd may not.
func control(file *os.File, f func(fd int) error) error {
	conn, err := file.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	if err := conn.Control(func(fd uintptr) { failed = f(int(fd)) }); err != nil {
		return err
	}
	return failed
}

// terminal returns the console's terminal, nil if it is none.
func (o *Output) terminal() *os.File {
	for _, w := range []io.Writer{o.opts.Stdout, o.opts.Stderr} {
		f, ok := w.(*os.File)
		if !ok {
			continue
		}
		is := false
		err := control(f, func(fd int) error {
			is = term.IsTerminal(fd)
			return nil
		})
		if err == nil && is {
			return f
		}
	}
	return nil
}

// Resize gives the rank's pseudo-terminals the size of the console's terminal. It is for
// SIGWINCH, which the caller also passes to the rank: a pseudo-terminal that controls no session
// sends no signal. Without TTY it does nothing.
func (o *Output) Resize() error {
	from := o.terminal()
	if !o.opts.TTY || from == nil {
		return nil
	}
	for _, r := range o.ranks {
		for _, s := range r.streams {
			if s.pipe.Name() != "ptmx" {
				continue
			}
			if err := copySize(s.pipe, from); err != nil {
				return err
			}
		}
	}
	return nil
}

// DefaultTemplate is the prefix that torchrun puts before the lines of -t.
const DefaultTemplate = "[${role_name}${local_rank}]:"

// placeholder matches those of Python's string.Template: $$, $name, ${name}.
var placeholder = lazy.Regexp(`\$(?:\$|([_a-zA-Z][_a-zA-Z0-9]*)|\{([_a-zA-Z][_a-zA-Z0-9]*)\})`)

// prefix fills in the template for one rank, as Python's safe_substitute does: unknown names
// stay unchanged.
func (o *Output) prefix(r *rank) string {
	role, template := o.opts.Role, o.opts.Template
	if role == "" {
		role = "default"
	}
	if template == "" {
		template = DefaultTemplate
	}
	values := map[string]string{
		"role_name":     role,
		"rank":          strconv.Itoa(r.global),
		"local_rank":    strconv.Itoa(r.local),
		"group_rank":    strconv.Itoa(o.opts.Group),
		"restart_count": strconv.Itoa(o.opts.Restarts),
	}
	return placeholder().ReplaceAllStringFunc(template, func(s string) string {
		if s == "$$" {
			return "$"
		}
		m := placeholder().FindStringSubmatch(s)
		if v, ok := values[m[1]+m[2]]; ok {
			return v
		}
		return s
	})
}
