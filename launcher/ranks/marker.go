package ranks

import (
	"bytes"
	"os"
	"strconv"
	"syscall"
)

// MarkerVariable is the environment variable that identifies a rank and processes that inherit its
// environment.
const MarkerVariable = "GPURUN_RUN_ID"

const slurmJobVariable = "SLURM_JOB_ID"

// marker identifies gpurun's processes that no longer descend from a guard, because their parents ended after
// all guards above them had died.
//
// The variable alone is not enough: people copy environments, and a rank's environment is inherited by
// a job that it submits and by a window that it opens in a terminal multiplexer. The process must also
// be an orphan that started after the attempt, of the same user, control group and Slurm job.
type marker struct {
	value  string
	began  uint64 // start time of the attempt, in ticks
	uid    uint32
	cgroup []byte
	job    string
	// adopters are the processes that can become the parent of such an orphan: gpurun and its ancestors.
	adopters map[int]bool
}

func newMarker(value string, began uint64, supervisor int) *marker {
	if value == "" {
		return nil
	}
	cgroup, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return nil // without the group the variable is not enough
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

// ancestors returns a process and all processes above it, including process 1.
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

// matches reports whether p has the marker and everything else agrees.
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
	// The environment comes last, since the read may wait for the kernel's lock on the process's memory.
	environ, err := os.ReadFile(dir + "/environ")
	return err == nil && variable(environ, MarkerVariable) == m.value && variable(environ, slurmJobVariable) == m.job
}

// variable returns the first variable of that name in /proc/PID/environ, which is the one that getenv
// returns; empty for none.
func variable(environ []byte, name string) string {
	for entry := range bytes.SplitSeq(environ, []byte{0}) {
		if value, ok := bytes.CutPrefix(entry, []byte(name+"=")); ok {
			return string(value)
		}
	}
	return ""
}
