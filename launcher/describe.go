package launcher

import (
	"fmt"
	"strings"
	"time"

	"github.com/gpurun/gpurun/strategy"
)

// Describe says a fact in one line.
func Describe(f strategy.Fact) string {
	who := "the node"
	if f.Rank >= 0 {
		who = fmt.Sprintf("rank %d", f.Rank)
	}
	switch {
	case f.Finding != nil:
		return fmt.Sprintf("%s, %s, line %d: %s", who, f.Source, f.Finding.Line, f.Finding.Text)
	case f.Exit != nil && f.Exit.Signal != 0:
		return fmt.Sprintf("%s was ended by signal %d", who, f.Exit.Signal)
	case f.Exit != nil:
		return fmt.Sprintf("%s ended with exit code %d", who, f.Exit.Code)
	case f.Kills != nil:
		return fmt.Sprintf("%s: the OOM killer ended %d processes of cgroup %s", who, f.Kills.Count, f.Kills.Group)
	case f.DriverEvent != nil:
		return fmt.Sprintf("%s, GPU driver at %s: %s", who, f.Time.Format(time.TimeOnly), strings.TrimPrefix(f.DriverEvent.Device+": ", ": ")+f.DriverEvent.Text())
	case f.Tenant != nil:
		return fmt.Sprintf("%s: others hold %s on %s", who, strategy.GiB(f.Tenant.Bytes), f.Tenant.Device)
	case f.Stuck != nil && f.Stuck.Debugger != "":
		return fmt.Sprintf("%s: process %d is held by a debugger, %s", who, f.Stuck.PID, f.Stuck.Debugger)
	case f.Stuck != nil:
		return fmt.Sprintf("%s: process %d cannot be ended (%s)", who, f.Stuck.PID, f.Stuck.Channel)
	case f.Stall != nil:
		return fmt.Sprintf("no rank made a step for %s", f.Stall.For.Duration().Round(time.Second))
	case f.Stack != nil:
		return fmt.Sprintf("%s, process %d: %s", who, f.Stack.PID, f.Stack.Calls(4))
	}
	return fmt.Sprintf("%s: %s", who, f.Gap)
}
