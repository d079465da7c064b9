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

// marker decides which processes that nobody of ours brought forth by a fork are
// ours all the same: those that something else, a terminal multiplexer or a
// daemon, started on a rank's behalf with the rank's environment.
//
// The variable alone condemns nobody, since people copy environments: the process
// must also have been started after the attempt, by the same user, in the same
// control group and in the same Slurm job.
type marker struct {
	value  string
	began  uint64 // start time of the attempt, in ticks
	uid    uint32
	cgroup []byte
	job    string
}

func newMarker(value string, began uint64) *marker {
	if value == "" {
		return nil
	}
	cgroup, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return nil // without a group to compare, the variable would stand alone
	}
	return &marker{
		value:  value,
		began:  began,
		uid:    uint32(os.Geteuid()),
		cgroup: cgroup,
		job:    os.Getenv(slurmJobVariable),
	}
}

// condemns reports whether p bears the marker and all the rest agrees.
func (m *marker) condemns(p process) bool {
	if m == nil || p.Start < m.began {
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
