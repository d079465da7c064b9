package ranks

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

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
