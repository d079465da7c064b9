package probe

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gpurun/gpurun/launcher/private"
	"github.com/gpurun/gpurun/launcher/procfs"
	"github.com/gpurun/gpurun/strategy"
)

// programsFile is where the processes of a rank note what they come to, one line each.
const (
	programsFile = "programs"
	endsFile     = "ends" // is there where that is every exit code
)

const (
	// lookPause is how often the processes below a shell are looked at from outside, for
	// those that lost gpurun's hook; soonPause for as long as busy after some came or went:
	// a program may be short.
	lookPause = 200 * time.Millisecond
	soonPause = 20 * time.Millisecond
	busy      = 3 * time.Second
	// reapedBound is how long Look waits for what is known of an end only once the parent
	// has taken it.
	reapedBound = time.Second
)

// Programs follows the Python programs below a shell, whose exit code the shell may hide:
// the outermost Python processes, whether or not gpurun's hook is in them. Where the kernel
// says how they end (Linux 6.15), their facts do.
type Programs struct {
	rank, leader int
	above        int // the parent of the leader, which orphans come to
	emit         func(strategy.Fact)
	quit         chan struct{}
	stop         func()
	work         sync.WaitGroup

	mu      sync.Mutex // guards what follows
	file    *os.File
	rest    []byte // of file, a line that has not ended
	all     []*followed
	owner   map[int]*followed // by the pid of each process of a program
	reaches map[int]reach     // by pid, what its hook noted
	codes   map[int]int       // by pid, the exit code that its hook noted
	noted   bool              // the hooks note exit codes
	below   []int             // the processes below the shell, down to the first Python
	changed time.Time         // when those were others last
}

// A followed program is one that is, or was, seen to run.
type followed struct {
	end   strategy.ProcessEnd
	over  chan struct{} // closed once its end is known as well as it will be
	blind bool          // it uses PyTorch without the hook
}

// reach is how far a process has come, by its own note.
type reach int

const (
	begun reach = iota + 1
	reachedTorch
	reachedOptimizer
)

// OpenPrograms makes the file in which the processes of a rank note what they come to. It
// has to be there when they start.
func OpenPrograms(dir string, rank int, emit func(strategy.Fact)) (*Programs, error) {
	return openPrograms(dir, rank, !kernelSaysEnds(), emit)
}

func openPrograms(dir string, rank int, noted bool, emit func(strategy.Fact)) (*Programs, error) {
	folder := rankFolder(dir, rank)
	if err := private.MkdirAll(folder); err != nil {
		return nil, err
	}
	f, err := private.OpenFile(filepath.Join(folder, programsFile), os.O_RDWR|os.O_CREATE)
	if err != nil {
		return nil, fmt.Errorf("follow the programs below the shell: %w", err)
	}
	if noted {
		if err := plant(filepath.Join(folder, endsFile), nil); err != nil && !errors.Is(err, fs.ErrExist) {
			return nil, errors.Join(err, f.Close())
		}
	}
	p := &Programs{
		rank: rank, emit: emit, file: f, quit: make(chan struct{}), noted: noted,
		owner: map[int]*followed{}, reaches: map[int]reach{}, codes: map[int]int{},
	}
	p.stop = sync.OnceFunc(func() {
		close(p.quit)
		p.work.Wait()
		p.file.Close()
	})
	return p, nil
}

// Follow begins to look at what the leader, a shell, has started.
func (p *Programs) Follow(leader int) {
	if p == nil {
		return
	}
	p.leader, p.above = leader, parentOf(leader)
	p.work.Go(func() {
		for {
			p.mu.Lock()
			p.readNotes()
			p.walk()
			pause := lookPause
			if time.Since(p.changed) < busy {
				pause = soonPause
			}
			p.mu.Unlock()
			select {
			case <-time.After(pause):
			case <-p.quit:
				return
			}
		}
	})
}

// Look emits how those have ended that are over by now.
func (p *Programs) Look() {
	if p == nil {
		return
	}
	p.mu.Lock()
	p.readNotes()
	p.walk()
	var over []*followed
	for _, f := range p.all {
		if !lives(f.end.PID) {
			over = append(over, f)
		}
	}
	p.mu.Unlock()
	late := time.After(reapedBound)
	for _, f := range over {
		select {
		case <-f.over:
		case <-late:
			return
		}
	}
}

// Stop ends the watch, and emits the ends of those that are over.
func (p *Programs) Stop() {
	if p == nil {
		return
	}
	p.Look()
	p.stop()
}

// AwaitTraining waits for the programs that train in the background though the shell above
// them has ended. Where nothing has trained so far, what else it left has as long as patience
// lasts to come to it. Note is given, once, the programs that are waited for. It reports
// whether it waited.
func (p *Programs) AwaitTraining(ctx, patience context.Context, note func(names string)) (waited bool) {
	if p == nil {
		return false
	}
	tick := time.NewTicker(lookPause / 4)
	defer tick.Stop()
	noted := false
	for ctx.Err() == nil {
		training, more := p.living()
		if len(training) == 0 && (!more || patience.Err() != nil) {
			break
		}
		waited = true
		if len(training) > 0 && !noted {
			noted = true
			note(strings.Join(training, ", "))
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
		}
	}
	return waited
}

// living names the programs that train, and reports whether others are left that may come
// to it.
func (p *Programs) living() (training []string, more bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.readNotes()
	any := p.walk()
	trained := slices.ContainsFunc(p.all, func(f *followed) bool {
		return !lives(f.end.PID) && (p.reach(f) == reachedOptimizer || f.blind)
	})
	for _, f := range p.all {
		if reached := p.reach(f); lives(f.end.PID) && (reached == reachedOptimizer || reached == reachedTorch && !trained) {
			training = append(training, f.name())
		}
	}
	return training, any && !trained
}

func (f *followed) name() string {
	return fmt.Sprintf("%s (process %d)", cmp.Or(f.end.Runs, "Python"), f.end.PID)
}

// Leave marks what still runs as left behind, to be ended by gpurun, and names what uses
// PyTorch without the hook.
func (p *Programs) Leave() (blind []string) {
	if p == nil {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, f := range p.all {
		if !lives(f.end.PID) {
			continue
		}
		f.end.Left = true
		if f.blind {
			blind = append(blind, f.name())
		}
	}
	return blind
}

// reach is how far the processes of a program have come.
func (p *Programs) reach(f *followed) (most reach) {
	for _, pid := range f.end.Members {
		most = max(most, p.reaches[pid])
	}
	return most
}

// readNotes reads what processes have noted since.
func (p *Programs) readNotes() {
	text, err := io.ReadAll(p.file)
	if err != nil || len(text) == 0 {
		return
	}
	p.rest = append(p.rest, text...)
	for {
		line, rest, whole := bytes.Cut(p.rest, []byte("\n"))
		if !whole {
			return
		}
		p.rest = rest
		number, what, _ := strings.Cut(string(line), " ")
		pid, err := strconv.Atoi(number)
		if err != nil || pid <= 0 {
			continue
		}
		p.see(pid)
		if ended, ok := strings.CutPrefix(what, "ended "); ok {
			code, inner, _ := strings.Cut(ended, " ")
			p.codes[pid], _ = strconv.Atoi(code)
			p.missed(pid, inner == "")
			continue
		}
		delete(p.codes, pid) // it became another program
		p.reaches[pid] = max(p.reaches[pid], map[string]reach{"began": begun, "torch": reachedTorch, "trains": reachedOptimizer}[what])
	}
}

// missed emits that a program has failed which was over before it could be followed. One
// that another Python program started does not count.
func (p *Programs) missed(pid int, outermost bool) {
	code := p.codes[pid]
	if p.owner[pid] != nil || code == 0 || !outermost || lives(pid) {
		return
	}
	now := time.Now()
	p.emit(strategy.Fact{Time: now, Rank: p.rank, Source: "gpurun", ProcessEnd: &strategy.ProcessEnd{
		PID: pid, Began: now, At: now, Members: []int{pid}, Exit: &strategy.Exit{Code: code & 255, PID: pid}, Trained: p.reaches[pid] == reachedOptimizer,
	}})
}

// walk looks at the processes that descend from the shell, down to the first Python, and
// reports whether there are any.
func (p *Programs) walk() (any bool) {
	var below []int
	defer func() {
		if !slices.Equal(below, p.below) {
			p.below, p.changed = below, time.Now()
		}
	}()
	for queue := childrenOf(p.above); len(queue) > 0; {
		pid := queue[0]
		queue = queue[1:]
		below = append(below, pid)
		any = any || lives(pid)
		if !isPython(pid) {
			queue = append(queue, childrenOf(pid)...)
			continue
		}
		p.see(pid)
		if f := p.owner[pid]; f != nil && !f.blind && p.reach(f) == 0 {
			f.blind = usesTorch(pid)
		}
	}
	return any
}

// see follows the program that a Python process belongs to. One whose parent program has
// ended is a program by itself.
func (p *Programs) see(pid int) {
	if f := p.owner[pid]; f != nil && (lives(f.end.PID) || f.end.PID == pid) {
		return
	}
	outer := p.outermost(pid)
	f := p.owner[outer]
	if f == nil || f.end.PID != outer {
		f = p.follow(outer)
	}
	p.owner[pid] = f
	if f != nil && !slices.Contains(f.end.Members, pid) {
		f.end.Members = append(f.end.Members, pid)
	}
}

// outermost is the outermost Python process above a process, or itself.
func (p *Programs) outermost(pid int) int {
	outer := pid
	for up, depth := pid, 0; up != p.leader && depth < 64; depth++ {
		up = parentOf(up)
		if up <= 1 || up == p.above {
			break
		}
		if isPython(up) {
			outer = up
		}
	}
	return outer
}

// follow begins to wait for the end of a program; nil where it is over already.
func (p *Programs) follow(pid int) *followed {
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return nil
	}
	began := startOf(pid)
	if pid == p.leader {
		began = time.Now() // it was a shell until now
	}
	f := &followed{
		end:  strategy.ProcessEnd{PID: pid, Began: began, Members: []int{pid}, Runs: runsOf(pid)},
		over: make(chan struct{}),
	}
	p.all = append(p.all, f)
	p.owner[pid] = f
	p.work.Go(func() {
		defer close(f.over)
		if exit, ended := awaitExit(fd, pid, p.quit); ended {
			p.ended(f, exit)
		}
	})
	return f
}

// ended emits how a program has ended. Where the kernel does not say it, its hook's note
// does; one that trained and left none was killed.
func (p *Programs) ended(f *followed, exit *strategy.Exit) {
	p.mu.Lock()
	p.readNotes()
	end := f.end
	end.Members, end.At = slices.Clone(end.Members), time.Now()
	reached := p.reach(f)
	if code, noted := p.codes[end.PID]; exit == nil && noted {
		exit = &strategy.Exit{Code: code & 255, PID: end.PID}
	} else if exit == nil && p.noted && p.reaches[end.PID] == reachedOptimizer {
		exit = &strategy.Exit{Code: 1, PID: end.PID}
	}
	if end.Left {
		exit = nil // it was gpurun that ended it
	}
	end.Exit = exit
	bad := end.Left || exit != nil && exit.Code != 0
	end.Trained = f.blind || bad && reached == reachedOptimizer
	emit := len(p.all) > 1 || end.PID != p.leader
	p.mu.Unlock()
	if emit {
		p.emit(strategy.Fact{Time: end.At, Rank: p.rank, Source: "gpurun", ProcessEnd: &end})
	}
}

// awaitExit waits for the end of a process, and for how it ended as far as the kernel says
// it: nil where it does not. It owns fd.
func awaitExit(fd, pid int, quit <-chan struct{}) (exit *strategy.Exit, ended bool) {
	defer unix.Close(fd)
	if !awaitEnd(pid, quit) {
		return nil, false
	}
	for pause := time.Millisecond; ; pause = min(2*pause, lookPause) {
		if s, err := procfs.ReadStat(pid); err == nil && s.Field(3) == "Z" {
			if status, err := strconv.Atoi(s.Field(52)); err == nil {
				return exitOf(status, pid), true
			}
		}
		info := unix.PidfdInfo{Mask: unix.PIDFD_INFO_EXIT}
		switch err := unix.IoctlPidfdInfo(fd, &info); {
		case err != nil && !errors.Is(err, unix.EINTR):
			return nil, true // an older kernel
		case err == nil && info.Mask&unix.PIDFD_INFO_EXIT != 0:
			return exitOf(int(info.Exit_code), pid), true
		}
		select {
		case <-time.After(pause):
		case <-quit:
			return nil, true
		}
	}
}

// kernelSaysEnds reports whether the kernel says how a process ended that is not our child.
func kernelSaysEnds() bool {
	var name unix.Utsname
	var major, minor int
	if err := unix.Uname(&name); err != nil {
		return false
	}
	if _, err := fmt.Sscanf(unix.ByteSliceToString(name.Release[:]), "%d.%d", &major, &minor); err != nil || major < 6 || major == 6 && minor < 15 {
		return false
	}
	fd, err := unix.PidfdOpen(os.Getpid(), 0)
	if err != nil {
		return false
	}
	defer unix.Close(fd)
	info := unix.PidfdInfo{Mask: unix.PIDFD_INFO_EXIT}
	return unix.IoctlPidfdInfo(fd, &info) == nil // a sandbox may refuse it
}

// exitOf makes an exit of the status that wait gives.
func exitOf(status, pid int) *strategy.Exit {
	w := unix.WaitStatus(status)
	if w.Signaled() {
		return &strategy.Exit{Code: 128 + int(w.Signal()), Signal: int(w.Signal()), PID: pid}
	}
	return &strategy.Exit{Code: w.ExitStatus(), PID: pid}
}
