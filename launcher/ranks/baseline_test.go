package ranks

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/gpurun/gpurun/strategy"
	"github.com/gpurun/gpurun/test/testenv"
)

// slow is a connection to a board that comes up after a while.
func slow(b *board, after time.Duration) *NVMLConnection {
	return connect(func() (*NVML, error) {
		time.Sleep(after)
		return &NVML{driver: b}, nil
	})
}

// tenants are what facts say that others hold, by device.
func tenants(facts []strategy.Fact) map[string]int64 {
	held := map[string]int64{}
	for _, f := range facts {
		if strategy.As[*strategy.Tenant](f) != nil {
			held[strategy.As[*strategy.Tenant](f).Device] = strategy.As[*strategy.Tenant](f).Bytes
		}
	}
	return held
}

// Neither the connection nor the watch waits for a driver that comes up slowly; what
// others held before is reported anyway, once, and is the level that Settle waits for.
func TestBaselineInParallelWithTheStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBoard(h100(0), h100(1))
		b.use(uuids[1], 20*gib)
		begin := time.Now()
		c := slow(b, 60*time.Millisecond)
		before := c.Baseline(nil, DeviceView{Count: 2}, 0)
		var emitted []strategy.Fact
		stop := before.Watch(t.Context(), func(f strategy.Fact) { emitted = append(emitted, f) })
		if took := time.Since(begin); took != 0 {
			t.Errorf("the ranks' start waits %s for NVML", took)
		}
		time.Sleep(time.Second)
		b.alarms <- func() (alarm, error) { return alarm{uuid: uuids[0], kind: xidAlarm, xid: 79}, nil }
		synctest.Wait()
		begin = time.Now()
		stop()
		if took := time.Since(begin); took != 0 {
			t.Errorf("the end of the watch took %s", took)
		}
		if diff := cmp.Diff(map[string]int64{"cuda:1": 20 * gib}, tenants(emitted)); diff != "" || len(emitted) != 2 || emitted[1].DriverEvent() == nil {
			t.Errorf("emitted %+v\n%s", emitted, diff)
		}
		b.use(uuids[0], 70*gib)
		b.use(uuids[1], 70*gib)
		time.AfterFunc(30*time.Millisecond, func() { b.use(uuids[0], 0); b.use(uuids[1], 20*gib) })
		if facts := before.Settle(t.Context(), time.Minute); facts != nil {
			t.Errorf("settled with %+v", facts)
		}
		emitted = nil
		before.Watch(t.Context(), func(f strategy.Fact) { emitted = append(emitted, f) })()
		if len(emitted) > 0 {
			t.Errorf("the second attempt is told %+v", emitted)
		}
		if err := c.Close(); err != nil || !b.closed {
			t.Errorf("close: %v", err)
		}
	})
}

// A level that was read when ranks may have been at work is none: nothing counts as held
// before, and what is held when they are gone is the level from then on.
func TestBaselineTooLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBoard(h100(0))
		c := slow(b, 3*time.Second)
		defer c.Close()
		before := c.Baseline(nil, DeviceView{Count: 1}, 0)
		var emitted []strategy.Fact
		stop := before.Watch(t.Context(), func(f strategy.Fact) { emitted = append(emitted, f) })
		b.use(uuids[0], 70*gib) // the rank's own
		time.Sleep(5 * time.Second)
		stop()
		if len(emitted) > 0 {
			t.Errorf("emitted %+v", emitted)
		}
		b.use(uuids[0], 30*gib) // somebody else's
		if diff := cmp.Diff(map[string]int64{"cuda:0": 30 * gib}, tenants(before.Settle(t.Context(), time.Second))); diff != "" {
			t.Errorf("settled (-want +got):\n%s", diff)
		}
		begin := time.Now()
		if facts := before.Settle(t.Context(), time.Minute); facts != nil || time.Since(begin) > 0 {
			t.Errorf("the second time, after %s: %+v", time.Since(begin), facts)
		}
	})
}

// Whatever waits for a driver that does not come up ends with its context or bound.
func TestBaselineOfADriverThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBoard(h100(0))
		c := slow(b, time.Hour)
		before := c.Baseline(nil, DeviceView{Count: 1}, 0)
		stop := before.Watch(t.Context(), func(f strategy.Fact) { t.Errorf("emitted %+v", f) })
		stop()
		if facts := before.Settle(t.Context(), 10*time.Second); facts != nil {
			t.Errorf("settled with %+v", facts)
		}
		cancelled, cancel := context.WithCancel(t.Context())
		cancel()
		if devices := before.Devices(cancelled); devices != nil {
			t.Errorf("devices %+v", devices)
		}
		begin := time.Now()
		if err := c.Close(); err == nil || time.Since(begin) != NVMLCloseBound {
			t.Errorf("closed after %s: %v", time.Since(begin), err)
		}
		time.Sleep(2 * time.Hour)
	})
}

// What is wrong with a driver is shown to people, and is evidence; a machine without one
// has nothing wrong with it.
func TestBaselineReportsFaults(t *testing.T) {
	for name, c := range map[string]struct {
		open   func() (*NVML, error)
		listed int
		want   []string
	}{
		"no NVML":         {func() (*NVML, error) { return nil, fmt.Errorf("open NVML: %w", ErrNoNVML) }, 0, nil},
		"it fails":        {func() (*NVML, error) { return nil, errors.New("open NVML: initialise: boom") }, 2, []string{"open NVML: initialise: boom"}},
		"it knows others": {func() (*NVML, error) { return &NVML{driver: newBoard(h100(0))}, nil }, 2, []string{"the job was prepared with 2 GPUs, and NVML knows 1 that it can use"}},
		"it knows them":   {func() (*NVML, error) { return &NVML{driver: newBoard(h100(0))}, nil }, 1, nil},
	} {
		synctest.Test(t, func(t *testing.T) {
			conn := connect(c.open)
			before := conn.Baseline([]string{"CUDA_VISIBLE_DEVICES=0,1"}, DeviceView{Count: c.listed, Model: "NVIDIA H200"}, 0)
			var told, gaps []string
			before.Warn = func(text string) { told = append(told, text) }
			stop := before.Watch(t.Context(), func(f strategy.Fact) { gaps = append(gaps, string(strategy.As[strategy.Gap](f))) })
			synctest.Wait()
			stop()
			if diff := cmp.Diff([][]string{c.want, c.want}, [][]string{told, gaps}); diff != "" {
				t.Errorf("%s (-want +got):\n%s", name, diff)
			}
			if err := conn.Close(); err != nil {
				t.Errorf("%s: close: %v", name, err)
			}
		})
	}
	var nobody *NVMLConnection
	if facts := nobody.Baseline(nil, DeviceView{}, 0).Settle(t.Context(), time.Hour); facts != nil || nobody.Close() != nil {
		t.Errorf("without a connection: %+v", facts)
	}
}

// What a process holds is known once NVML is up, over all devices of the job.
func TestMemoryOfAProcess(t *testing.T) {
	b := newBoard(h100(0), h100(1))
	b.use(uuids[0], 3*gib, DeviceProcess{PID: 7, Bytes: 2 * gib}, DeviceProcess{PID: 8, Bytes: gib})
	b.use(uuids[1], gib, DeviceProcess{PID: 7, Bytes: gib})
	c := slow(b, 0)
	before := c.Baseline(nil, DeviceView{Count: 2}, 0)
	before.Devices(t.Context()) // waits
	for pid, want := range map[int]int64{7: 3 * gib, 8: gib, 9: 0} {
		if got := before.usedBy(pid); got != want {
			t.Errorf("process %d holds %d bytes, want %d", pid, got, want)
		}
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	var none *NVMLConnection
	if got := none.Baseline(nil, DeviceView{}, 0).Used(7); got != 0 {
		t.Errorf("without NVML a process holds %d bytes", got)
	}
}

// baselineOf is a board's devices before attempt 0.
func baselineOf(t *testing.T, n *NVML) []Device {
	t.Helper()
	devices, err := n.Devices()
	testenv.Check(t, err)
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

// What the devices hold is read beside all else, and a driver that does not come up, or
// loses a device, holds up no other.
func TestFollow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBoard(h100(0), h100(1))
		c := slow(b, time.Minute)
		before := c.Baseline(nil, DeviceView{Count: 2}, 0)
		now, stop := before.Follow(t.Context())
		if got := now(); got != nil {
			t.Errorf("before NVML is up: %+v", got)
		}
		time.Sleep(time.Minute + time.Second)
		b.use(uuids[1], 20*gib)
		time.Sleep(followPause)
		if got := now(); len(got) != 2 || got[0].Used != 1<<20 || got[1].Used != 20*gib || got[1].Total == 0 {
			t.Errorf("now %+v", got)
		}
		b.mu.Lock()
		b.broken[uuids[1]] = errors.New("lost")
		b.mu.Unlock()
		b.use(uuids[0], 1*gib)
		time.Sleep(followPause)
		if got := now(); len(got) != 2 || got[0].Used != 1*gib || got[1].Used != 20*gib {
			t.Errorf("with a device that is lost: %+v", got)
		}
		stop()
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
}

// The end does not wait for NVML.
func TestFollowEndsBeforeNVML(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := slow(newBoard(h100(0)), time.Hour)
		begin := time.Now()
		now, stop := c.Baseline(nil, DeviceView{}, 0).Follow(t.Context())
		stop()
		if took := time.Since(begin); took != 0 || now() != nil {
			t.Errorf("took %s: %+v", took, now())
		}
		time.Sleep(2 * time.Hour)
	})
	var none *NVMLConnection
	now, stop := none.Baseline(nil, DeviceView{}, 0).Follow(t.Context())
	stop()
	if now() != nil {
		t.Error("devices without a driver")
	}
}
