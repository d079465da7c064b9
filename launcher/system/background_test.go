package system

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gpurun/gpurun/test/testenv"
)

func TestCloseCallsOnceMoreOnlyIfWoken(t *testing.T) {
	for woken, want := range map[bool]int{true: 2, false: 1} {
		synctest.Test(t, func(t *testing.T) {
			w, calls := NewWorker(), 0
			w.Wake()
			w.Wake()
			w.Start(0, func() { calls++ })
			synctest.Wait()
			if woken {
				w.Wake()
			}
			w.Close()
			if !w.Wait(t.Context(), time.Second) || calls != want {
				t.Errorf("woken %v: %d calls, want %d", woken, calls, want)
			}
		})
	}
}

func TestPauseCallsWithoutWake(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, calls := NewWorker(), 0
		w.Start(time.Minute, func() { calls++ })
		time.Sleep(150 * time.Second)
		w.Close()
		if !w.Wait(t.Context(), time.Second) || calls != 2 {
			t.Errorf("%d calls", calls)
		}
	})
}

func TestWaitIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, hang := NewWorker(), make(chan struct{})
		w.Start(0, func() { <-hang })
		w.Wake()
		w.Close()
		began := time.Now()
		if w.Wait(t.Context(), time.Second) || time.Since(began) != time.Second {
			t.Errorf("a call that hangs ended after %v", time.Since(began))
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if w.Wait(ctx, time.Hour) || time.Since(began) != time.Second {
			t.Error("Wait ignored its context")
		}
		close(hang)
	})
}

func TestWorkerThatWasNotStartedHasEnded(t *testing.T) {
	w := NewWorker()
	w.Wake()
	w.Close()
	if !w.Wait(t.Context(), time.Hour) {
		t.Error("it has not")
	}
}

func TestStatOfThisProcess(t *testing.T) {
	s, err := ReadStat(os.Getpid())
	testenv.Check(t, err)
	if s.Field(1) != strconv.Itoa(os.Getpid()) || s.Field(4) != strconv.Itoa(os.Getppid()) || s.Name() == "" {
		t.Errorf("%+v", s)
	}
	if s.Field(1000) != "" {
		t.Errorf("field 1000 is %q", s.Field(1000))
	}
	if _, err := ReadStat(1 << 30); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("of no process: %v", err)
	}
}

func TestStatusOfThisProcess(t *testing.T) {
	s, err := ReadStatus(os.Getpid())
	testenv.Check(t, err)
	if s["Pid"] != strconv.Itoa(os.Getpid()) || s["TracerPid"] == "" || ProcBytes(s["VmRSS"]) < 1<<20 {
		t.Errorf("%v", s)
	}
	if ProcBytes("12 kB") != 12<<10 || ProcBytes("") != 0 || ProcBytes("many") != 0 {
		t.Error("sizes are wrong")
	}
}
