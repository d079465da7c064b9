package strategy

import (
	"slices"
	"strings"
	"testing"

	"github.com/gpurun/gpurun/strategy/cause"
)

const (
	illegalAccess = "RuntimeError: CUDA error: an illegal memory access was encountered\n"
	deviceAssert  = "RuntimeError: CUDA error: device-side assert triggered\n"
	eccWords      = "RuntimeError: CUDA error: uncorrectable ECC error encountered\n"
)

// drives makes the fact of an event of the driver on cuda:1.
func drives(seconds int, e cause.DriverEvent) []Fact {
	e.Device, e.UUID = "cuda:1", "GPU-1"
	return one(-1, seconds, Fact{Source: "nvml", Content: (*DriverEvent)(&e)})
}

func xid(seconds, n int) []Fact {
	return drives(seconds, cause.DriverEvent{Kind: cause.XIDEvent, XID: n})
}

// The driver's events decide between the ranks' output and the way in which they end.
func TestDiagnoseDriverEvents(t *testing.T) {
	for _, c := range []struct {
		name   string
		facts  []Fact
		cause  cause.Code
		rank   int
		device string
		code   int
	}{
		{"a GPU falls off the bus and its rank says nothing", slices.Concat(xid(1, 79), exits(1, 2, 134)), cause.GPUHardware, -1, "cuda:1", 134},
		{"memory is not correctable, in the driver's words and in the rank's", slices.Concat(drives(1, cause.DriverEvent{Kind: cause.ECCEvent}), says(3, 2, eccWords), exits(3, 3, 1)), cause.GPUHardware, 3, "cuda:1", 1},
		{"the GPU is lost and the peers' collectives time out", slices.Concat(drives(1, cause.DriverEvent{Kind: cause.LostEvent}), says(0, 60, watchdog), exits(0, 61, 134)), cause.GPUHardware, -1, "cuda:1", 134},
		{"broken hardware explains the illegal access", slices.Concat(says(0, 1, illegalAccess), xid(2, 79), exits(0, 3, 1)), cause.GPUHardware, -1, "cuda:1", 1},
		{"a kernel of the job's faults, and the rank says so", slices.Concat(xid(1, 31), says(2, 2, illegalAccess), exits(2, 3, 1)), cause.IllegalAccess, 2, "cuda:1", 1},
		{"a kernel faults and the rank says nothing", slices.Concat(xid(1, 13), exits(0, 2, 1)), cause.IllegalAccess, -1, "cuda:1", 1},
		{"an assertion raises an Xid", slices.Concat(xid(1, 43), says(0, 2, deviceAssert), exits(0, 3, 1)), cause.DeviceAssert, 0, "", 1},
		{"a rank that is killed inside a kernel raises an Xid", slices.Concat(says(0, 1, valueError), exits(0, 2, 1), xid(3, 43), stopped(1, 4)), cause.UserError, 0, "", 1},
		{"Xid 45 follows an end", slices.Concat(xid(1, 45), exits(0, 2, 1)), cause.Unknown, 0, "", 1},
		{"a remapped row is no reason to end", slices.Concat(xid(1, 63), says(0, 2, valueError), exits(0, 3, 1)), cause.UserError, 0, "", 1},
		{"an Xid that is not in the table", slices.Concat(xid(1, 300), exits(0, 2, 1)), cause.Unknown, 0, "", 1},
		{"ranks that are stopped inside a kernel raise an Xid", slices.Concat(xid(1, 43), stopped(0, 2), stopped(1, 2)), cause.Unknown, -1, "", 0},
		{"a GPU is lost and the ranks hang until they are stopped", slices.Concat(xid(1, 79), stopped(0, 2), stopped(1, 2)), cause.GPUHardware, -1, "cuda:1", 0},
		{"the job trains on", slices.Concat(xid(1, 94), exits(0, 2, 0)), cause.None, -1, "", 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := Diagnose(Evidence{Ranks: 4, Facts: c.facts})
			checkBecause(t, d, c.facts)
			if d.Cause != c.cause || d.Rank != c.rank || d.Device != c.device || d.ExitCode != c.code {
				t.Errorf("%s on rank %d, %q, exit code %d; want %s on rank %d, %q, %d", d.Cause, d.Rank, d.Device, d.ExitCode, c.cause, c.rank, c.device, c.code)
			}
		})
	}
}

// A verdict quotes the event if no rank printed a message.
func TestDriverEventIsTheError(t *testing.T) {
	d := Diagnose(Evidence{Ranks: 4, Facts: slices.Concat(xid(1, 79), exits(1, 2, 134))})
	if want := "Xid 79 on GPU-1: the GPU has fallen off the bus"; d.Error != want || !strings.Contains(d.Sentence(), "the GPU failed") {
		t.Errorf("%q, %q; want %q", d.Error, d.Sentence(), want)
	}
}
