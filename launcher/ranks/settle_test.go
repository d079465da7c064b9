package ranks

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/gpurun/gpurun/strategy"
)

// baselineOf is a board's devices before attempt 0.
func baselineOf(t *testing.T, n *NVML) []Device {
	t.Helper()
	devices, err := n.Devices()
	if err != nil {
		t.Fatal(err)
	}
	return devices
}

func TestSettleAtOnce(t *testing.T) {
	b := newBoard(h100(0), h100(1))
	n := &NVML{driver: b}
	baseline := baselineOf(t, n)
	b.use(uuids[1], idleLevel) // a little more than before, but nothing to speak of
	if facts := n.Settle(t.Context(), baseline, time.Hour); facts != nil {
		t.Errorf("%+v", facts)
	}
	if b.asked != 2 {
		t.Errorf("asked %d times", b.asked)
	}
}

// Memory comes back a while after the ranks have gone.
func TestSettleWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBoard(h100(0), h100(1))
		n := &NVML{driver: b}
		b.use(uuids[0], 20*gib) // somebody has been here all along
		baseline := baselineOf(t, n)
		b.use(uuids[0], 75*gib)
		b.use(uuids[1], 70*gib)
		time.AfterFunc(3*time.Second, func() { b.use(uuids[0], 20*gib) })
		time.AfterFunc(5*time.Second, func() { b.use(uuids[1], 1<<20) })
		begin := time.Now()
		if facts := n.Settle(t.Context(), baseline, time.Minute); facts != nil {
			t.Errorf("%+v", facts)
		}
		if took := time.Since(begin); took < 5*time.Second || took > 5*time.Second+2*settleStep {
			t.Errorf("took %v, want 5 s", took)
		}
	})
}

// What ended ranks held comes back within milliseconds, which is all that is waited.
func TestSettleIsQuick(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBoard(h100(0))
		n := &NVML{driver: b}
		baseline := baselineOf(t, n)
		b.use(uuids[0], 75*gib)
		time.AfterFunc(15*time.Millisecond, func() { b.use(uuids[0], 0) })
		begin := time.Now()
		if facts := n.Settle(t.Context(), baseline, time.Minute); facts != nil {
			t.Errorf("%+v", facts)
		}
		if took := time.Since(begin); took > 25*time.Millisecond {
			t.Errorf("took %v for memory that was back after 15 ms", took)
		}
	})
}

func TestSettleHeld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBoard(h100(0), h100(1), h100(2))
		n := &NVML{driver: b}
		baseline := []Device{h100(2), h100(0)} // cuda:0 and cuda:1
		b.use(uuids[0], 39*gib, DeviceProcess{4711, 30 * gib}, DeviceProcess{12, 9 * gib})
		b.use(uuids[1], 70*gib) // not the job's
		begin := time.Now()
		got := n.Settle(t.Context(), baseline, 10*time.Second)
		want := []strategy.Fact{{
			Time: time.Now(), Rank: -1, Source: "nvml",
			Content: &strategy.Tenant{Device: "cuda:1", Bytes: 39 * gib, PIDs: []int{12, 4711}},
		}}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("-want +got\n%s", diff)
		}
		if took := time.Since(begin); took != 10*time.Second {
			t.Errorf("took %v, want the bound of 10 s", took)
		}
	})
}

// A container does not see which process holds memory, but sees that it is held.
func TestSettleHolderUnseen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBoard(h100(0))
		n := &NVML{driver: b}
		baseline := baselineOf(t, n)
		b.use(uuids[0], 5*gib)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		got := n.Settle(ctx, baseline, time.Hour)
		if len(got) != 1 || strategy.As[*strategy.Tenant](got[0]) == nil || strategy.As[*strategy.Tenant](got[0]).Bytes != 5*gib || strategy.As[*strategy.Tenant](got[0]).PIDs != nil {
			t.Errorf("%+v", got)
		}
	})
}

// A GPU that does not answer is a gap, at once: waiting does not mend it.
func TestSettleLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBoard(h100(0), h100(1))
		n := &NVML{driver: b}
		baseline := baselineOf(t, n)
		b.broken[uuids[1]] = errLost
		begin := time.Now()
		got := n.Settle(t.Context(), baseline, time.Hour)
		if len(got) != 1 || strategy.As[strategy.Gap](got[0]) != "cannot read the memory use of cuda:1: GPU is lost" || time.Since(begin) > 0 {
			t.Errorf("%+v after %v", got, time.Since(begin))
		}
	})
}
