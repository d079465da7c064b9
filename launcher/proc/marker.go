package proc

import (
	"bytes"
	"os"
	"strconv"
	"syscall"
)

// MarkerVariable is the variable of the environment by which a rank, and what
// inherits its environment, can be told to be ours.
const MarkerVariable = "GPURUN_RUN_ID"

const slurmJobVariable = "SLURM_JOB_ID"

// marker decides which processes are ours that no longer descend from a guard:
// those that lost their parents after all guards above them had died.
//
// The variable alone is not enough, since people copy environments, and since a
// rank's environment goes along with a job that it submits and with a window that
// it opens in a terminal multiplexer. The process must also be an orphan, have been
// started after the attempt, by the same user, in the same control group and in the
// same Slurm job.
type marker struct {
	value  string
	began  uint64 // start time of the attempt, in ticks
	uid    uint32
	cgroup []byte
	job    string
	// adopters are whom an orphan of ours can have come to: gpurun, or who is above it.
	adopters map[int]bool
}

func newMarker(value string, began uint64, supervisor int) *marker {
	if value == "" {
		return nil
	}
	cgroup, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return nil // without a group to compare, the variable would stand alone
	}
	return &marker{
		value:    value,
		began:    began,
		uid:      uint32(os.Geteuid()),
		cgroup:   cgroup,
		job:      os.Getenv(slurmJobVariable),
		adopters: ancestors(supervisor),
	}
}

// ancestors is a process and all above it, the first process of all included.
func ancestors(pid int) map[int]bool {
	line := map[int]bool{1: true}
	for pid > 1 && !line[pid] {
		line[pid] = true
		p, err := readProcess(pid)
		if err != nil {
			break
		}
		pid = p.parent
	}
	return line
}

// matches reports whether p bears the marker and all the rest agrees.
func (m *marker) matches(p process) bool {
	if m == nil || p.Start < m.began || !m.adopters[p.parent] {
		return false
	}
	dir := "/proc/" + strconv.Itoa(p.PID)
	info, err := os.Stat(dir)
	if err != nil {
		return false
	}
	if owner, ok := info.Sys().(*syscall.Stat_t); !ok || owner.Uid != m.uid {
		return false
	}
	cgroup, err := os.ReadFile(dir + "/cgroup")
	if err != nil || !bytes.Equal(cgroup, m.cgroup) {
		return false
	}
	// The environment comes last: it lies in the process's own memory, and the read
	// waits where the kernel has that locked.
	environ, err := os.ReadFile(dir + "/environ")
	return err == nil && variable(environ, MarkerVariable) == m.value && variable(environ, slurmJobVariable) == m.job
}

// variable returns the value of the first variable of that name in the content of
// /proc/PID/environ, which is also the one that getenv returns; empty where there
// is none.
func variable(environ []byte, name string) string {
	for entry := range bytes.SplitSeq(environ, []byte{0}) {
		if value, ok := bytes.CutPrefix(entry, []byte(name+"=")); ok {
			return string(value)
		}
	}
	return ""
}
