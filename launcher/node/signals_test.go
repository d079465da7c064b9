package node

import (
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// What comes while ranks are being started waits for them: a pause must not stop
// gpurun beside ranks that run, and a notice must not be lost.
func TestSignalsKeepWhatComesWhileRanksStart(t *testing.T) {
	s := &Signals{}
	s.begin(30 * time.Second)
	s.pass(unix.SIGUSR1)
	s.pause() // would stop this test for good
	if !s.paused || len(s.late) != 1 || s.late[0] != unix.SIGUSR1 {
		t.Errorf("paused %v, late %v", s.paused, s.late)
	}
	if s.grace != 30*time.Second {
		t.Errorf("grace %s", s.grace)
	}
	s.resume()
	s.leave()
	if s.starting || s.grace != 0 || s.late != nil {
		t.Errorf("%+v", s)
	}
}
