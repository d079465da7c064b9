package proc

import (
	"fmt"
	"strconv"
	"time"

	"github.com/gpurun/gpurun/launcher/procfs"
)

// debuggerOf names who traces a process, "gdb (process 123)"; empty for nobody. The
// kernel tells the end of a traced process to the tracer, and to its parent only once
// the tracer lets go of it; where the tracer has asked to see the end, even SIGKILL
// stops the process right before.
func debuggerOf(pid int) string {
	status, err := procfs.ReadStatus(pid)
	tracer, parse := strconv.Atoi(status["TracerPid"])
	if err != nil || parse != nil || tracer == 0 {
		return ""
	}
	if p, err := readProcess(tracer); err == nil {
		return fmt.Sprintf("%s (process %d)", p.name, tracer)
	}
	return fmt.Sprintf("process %d", tracer)
}

// endOf reads how a process has ended that nobody has reaped, from /proc/PID/stat
// (field 52). The kernel tells it only those who might trace the process themselves;
// others read 0, which is no way to end for a process that is being held: then the
// code is that of an end nobody knows.
func endOf(id identity) (end, bool) {
	stat, err := procfs.ReadStat(id.PID)
	if err != nil {
		return end{}, false
	}
	p, err := processOf(stat)
	if err != nil || p.identity != id || p.alive() {
		return end{}, false
	}
	status, err := strconv.Atoi(stat.Field(52))
	if err != nil {
		return end{}, false
	}
	e := end{At: time.Now(), Code: status >> 8 & 0xff, Signal: status & 0x7f}
	if e.Signal != 0 {
		e.Code = 128 + e.Signal
	}
	return e, true
}

// tellHeld tells the end of a rank that its debugger keeps from everybody else. The
// caller holds mu.
func (g *Group) tellHeld(r *member) bool {
	who := debuggerOf(r.id.PID)
	if who == "" {
		return false
	}
	e, over := endOf(r.id)
	if !over {
		return false
	}
	g.log.Warn("a rank has ended, and its debugger holds what is left of it", "rank", r.rank, "debugger", who)
	g.sendExit(r, e)
	return true
}
