package ranks

import (
	"bytes"
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// reaper is shared by all groups, since orphans become children of the process, not of a group.
var reaper struct {
	mu    sync.Mutex // guards users, start and stop
	users int
	able  bool // pidfds show which children have an owner
	stop  chan struct{}
	done  chan struct{}
}

// If the pidfd on an ended child is closed and the child not reaped, no event reports that. So the reaper
// looks again, at growing intervals.
const (
	reapPause    = 100 * time.Millisecond
	reapPauseMax = 10 * time.Second
)

// Reap makes this process the parent of its descendants' orphans, as the init process of a container always
// is, and reaps them until release is called, once. Start does the same while its group exists. A caller that
// wants no zombies between two groups calls Reap itself.
//
// Reap never reaps a child that os/exec or os.StartProcess of this process waits for. These packages hold a
// pidfd on each of their children, and /proc/self/fdinfo shows the pid behind every pidfd.
func Reap() (release func(), err error) {
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return nil, fmt.Errorf("become subreaper: %w", err)
	}
	reaper.mu.Lock()
	defer reaper.mu.Unlock()
	if reaper.users++; reaper.users == 1 {
		reaper.able = showsHeld()
		reaper.stop, reaper.done = make(chan struct{}), make(chan struct{})
		go reapOrphans(reaper.able, reaper.stop, reaper.done)
	}
	return func() {
		reaper.mu.Lock()
		defer reaper.mu.Unlock()
		if reaper.users--; reaper.users == 0 {
			close(reaper.stop)
			<-reaper.done
		}
	}, nil
}

func reapOrphans(able bool, stop <-chan struct{}, done chan<- struct{}) {
	defer close(done)
	if !able {
		<-stop // better a zombie than a child taken from its owner
		return
	}
	died := make(chan os.Signal, 1)
	signal.Notify(died, unix.SIGCHLD)
	defer signal.Stop(died)
	pause := reapPause
	for {
		var again <-chan time.Time
		if takeOrphans() {
			again = time.After(pause)
		}
		select {
		case <-died:
			pause = reapPause
		case <-again:
			pause = min(2*pause, reapPauseMax)
		case <-stop:
			takeOrphans()
			return
		}
	}
}

// takeOrphans reaps the ended children on which this process holds no pidfd, and reports whether there
// are held ones.
func takeOrphans() (held bool) {
	pids, err := children(os.Getpid())
	if err != nil {
		return false
	}
	var zombies []int
	for _, pid := range pids {
		if p, err := readProcess(pid); err == nil && !p.alive() {
			zombies = append(zombies, pid)
		}
	}
	if len(zombies) == 0 {
		return false
	}
	// The order matters: a pidfd is opened with its child, and closed only after the child is reaped.
	holds, err := heldPIDs(os.Getpid())
	if err != nil {
		return true
	}
	for _, pid := range zombies {
		if holds[pid] {
			held = true
		} else {
			reap(pid)
		}
	}
	return held
}

// showsHeld reports whether package os holds pidfds here, and the kernel shows the pids behind them:
// Linux 5.4 and no sandbox that forbids it.
func showsHeld() bool {
	self, err := os.FindProcess(os.Getpid())
	if err != nil {
		return false
	}
	defer func() { _ = self.Release() }() // no error can matter
	held, err := heldPIDs(os.Getpid())
	return err == nil && held[os.Getpid()]
}

// heldPIDs returns the pids behind all pidfds of a process.
func heldPIDs(pid int) (map[int]bool, error) {
	dir := "/proc/" + strconv.Itoa(pid) + "/fdinfo/"
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("list descriptors: %w", err)
	}
	held := make(map[int]bool)
	for _, entry := range entries {
		data, err := os.ReadFile(dir + entry.Name())
		if err != nil {
			continue
		}
		for line := range bytes.Lines(data) {
			if value, ok := bytes.CutPrefix(line, []byte("Pid:")); ok {
				if pid, err := strconv.Atoi(strings.TrimSpace(string(value))); err == nil {
					held[pid] = true
				}
			}
		}
	}
	return held, nil
}
