package ranks

import (
	"fmt"
	"github.com/gpurun/gpurun/launcher/system"
	"strconv"
	"time"
)

// debuggerOf names the process that traces another, such as "gdb (process 123)"; empty for none. The kernel
// reports the end of a traced process to the tracer first, and to the parent only once the tracer detaches. A
// tracer that waits for the end holds even a killed process right before its end.
func debuggerOf(pid int) string {
	status, err := system.ReadStatus(pid)
	tracer, parse := strconv.Atoi(status["TracerPid"])
	if err != nil || parse != nil || tracer == 0 {
		return ""
	}
	if p, err := readProcess(tracer); err == nil {
		return fmt.Sprintf("%s (process %d)", p.name, tracer)
	}
	return fmt.Sprintf("process %d", tracer)
}

// endOf reads the end of an unreaped process from /proc/PID/stat (field 52). The kernel shows it only to
// processes that could trace that process; others read 0.
func endOf(id identity) (processEnd, bool) {
	stat, err := system.ReadStat(id.PID)
	if err != nil {
		return processEnd{}, false
	}
	p, err := processOf(stat)
	if err != nil || p.identity != id || p.alive() {
		return processEnd{}, false
	}
	status, err := strconv.Atoi(stat.Field(52))
	if err != nil {
		return processEnd{}, false
	}
	e := processEnd{At: time.Now(), Code: status >> 8 & 0xff, Signal: status & 0x7f}
	if e.Signal != 0 {
		e.Code = 128 + e.Signal
	}
	return e, true
}

// reportHeld reports the end of a rank if its debugger withholds that end from its parent. The caller holds
// mu.
func (g *Group) reportHeld(r *member) bool {
	who := debuggerOf(r.id.PID)
	if who == "" {
		return false
	}
	e, over := endOf(r.id)
	if !over {
		return false
	}
	g.warn("rank %d has ended, and its debugger holds its process: %s", r.rank, who)
	g.sendExit(r, e)
	return true
}
