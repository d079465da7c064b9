package hook

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

	"github.com/gpurun/gpurun/launcher/system"
	"github.com/gpurun/gpurun/strategy"
)

const (
	programsFile = "programs" // in which the processes of a rank note how far they have come, one line each
	endsFile     = "ends"     // exists where they note every exit code
)

const (
	// lookPause is the time between two walks over the processes below a shell, for those that
	// lost gpurun's hook. For the time busy after some came or went it is soonPause: a program
	// may be short.
	lookPause = 200 * time.Millisecond
	soonPause = 20 * time.Millisecond
	busy      = 3 * time.Second
	// reapedBound is how long Look waits for an end that is known only once the parent
	// has reaped it.
	reapedBound = time.Second
)

// Programs follows the Python programs below a shell, whose exit code the shell may hide:
// the outermost Python processes, with gpurun's hook or without. Where the kernel
// reports how they end (Linux 6.15), their facts include it.
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
	names   map[int]string    // by pid, the scripts that its hook noted: those of a program that ended before it was seen
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

// OpenPrograms makes the file in which the processes of a rank note how far they have come. It
// has to exist when they start.
func OpenPrograms(dir string, rank int, emit func(strategy.Fact)) (*Programs, error) {
	return openPrograms(dir, rank, !kernelReportsEnds(), emit)
}

func openPrograms(dir string, rank int, noted bool, emit func(strategy.Fact)) (*Programs, error) {
	folder := rankFolder(dir, rank)
	if err := system.MkdirAll(folder); err != nil {
		return nil, err
	}
	f, err := system.OpenFile(filepath.Join(folder, programsFile), os.O_RDWR|os.O_CREATE)
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
		owner: map[int]*followed{}, reaches: map[int]reach{}, codes: map[int]int{}, names: map[int]string{},
	}
	p.stop = sync.OnceFunc(func() {
		close(p.quit)
		p.work.Wait()
		p.file.Close()
	})
	return p, nil
}

// Follow begins to follow the programs that the leader, a shell, starts.
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

// Look emits the ends of the programs that are over by now.
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

// Stop ends the watch, and emits the ends of the programs that are over.
func (p *Programs) Stop() {
	if p == nil {
		return
	}
	p.Look()
	p.stop()
}

// AwaitTraining waits for the programs that train in the background though the shell above
// them has ended. Where nothing has trained so far, other programs that it left may begin until
// patience ends. Note is called once, with the names of the programs. AwaitTraining reports
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

// living names the programs that train, and reports whether others are left that may begin.
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

// Leave marks the running programs as left behind, to be ended by gpurun, and names those that
// use PyTorch without the hook.
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

// readNotes reads the new notes of processes.
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
		if name, ok := strings.CutPrefix(what, "runs "); ok {
			p.names[pid] = name[:min(len(name), mostName)]
			continue
		}
		if ended, ok := strings.CutPrefix(what, "ended "); ok {
			code, inner, _ := strings.Cut(ended, " ")
			p.codes[pid], _ = strconv.Atoi(code)
			p.missed(pid, inner == "")
			continue
		}
		delete(p.codes, pid) // it became another program
		p.reaches[pid] = max(p.reaches[pid], map[string]reach{"began": begun, "torch": reachedTorch,
			"trains": reachedOptimizer}[what])
	}
}

// missed emits the failure of a program that was over before it could be followed. One
// that another Python program started does not count.
func (p *Programs) missed(pid int, outermost bool) {
	code := p.codes[pid]
	if p.owner[pid] != nil || code == 0 || !outermost || lives(pid) {
		return
	}
	now := time.Now()
	p.emit(strategy.Fact{Time: now, Rank: p.rank, Source: "gpurun", Content: &strategy.ProcessEnd{
		PID: pid, Began: now, At: now, Members: []int{pid}, Runs: p.names[pid],
		Exit: &strategy.Exit{Code: code & 255, PID: pid}, Trained: p.reaches[pid] == reachedOptimizer,
	}})
}

// walk finds the processes below the shell, down to the first Python, and reports whether there
// are any.
func (p *Programs) walk() (any bool) {
	var below []int
	defer func() {
		if !slices.Equal(below, p.below) {
			p.below, p.changed = below, time.Now()
		}
	}()
	for queue, _ := system.ChildProcesses(p.above); len(queue) > 0; {
		pid := queue[0]
		queue = queue[1:]
		below = append(below, pid)
		any = any || lives(pid)
		if !isPython(pid) {
			children, _ := system.ChildProcesses(pid)
			queue = append(queue, children...)
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

// ended emits how a program has ended. Where the kernel does not report it, the hook's note
// does; a program that trained and left none was killed.
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
		p.emit(strategy.Fact{Time: end.At, Rank: p.rank, Source: "gpurun", Content: &end})
	}
}

// awaitExit waits for the end of a process, and for its exit as the kernel reports
// it: nil where it does not. It owns fd.
func awaitExit(fd, pid int, quit <-chan struct{}) (exit *strategy.Exit, ended bool) {
	defer unix.Close(fd)
	if !awaitEnd(pid, quit) {
		return nil, false
	}
	for pause := time.Millisecond; ; pause = min(2*pause, lookPause) {
		if s, err := system.ReadStat(pid); err == nil && s.Field(3) == "Z" {
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

// kernelReportsEnds reports whether the kernel reports the exit of a process that is not our child.
func kernelReportsEnds() bool {
	var name unix.Utsname
	var major, minor int
	if err := unix.Uname(&name); err != nil {
		return false
	}
	if _, err := fmt.Sscanf(unix.ByteSliceToString(name.Release[:]), "%d.%d", &major, &minor); err != nil || major < 6 ||
		major == 6 && minor < 15 {
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

// exitOf makes an exit of wait's status.
func exitOf(status, pid int) *strategy.Exit {
	w := unix.WaitStatus(status)
	if w.Signaled() {
		return &strategy.Exit{Code: 128 + int(w.Signal()), Signal: int(w.Signal()), PID: pid}
	}
	return &strategy.Exit{Code: w.ExitStatus(), PID: pid}
}
