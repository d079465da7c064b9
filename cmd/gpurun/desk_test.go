package main

import (
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// What comes while ranks are being started waits for them: a pause must not stop
// gpurun beside ranks that run, and a notice must not be lost.
func TestTheDeskKeepsWhatComesWhileRanksStart(t *testing.T) {
	d := &desk{}
	d.begin(30 * time.Second)
	d.pass(unix.SIGUSR1)
	d.pause() // would stop this test for good
	if !d.paused || len(d.late) != 1 || d.late[0] != unix.SIGUSR1 {
		t.Errorf("paused %v, late %v", d.paused, d.late)
	}
	if d.grace != 30*time.Second {
		t.Errorf("grace %s", d.grace)
	}
	d.resume()
	d.leave()
	if d.starting || d.grace != 0 || d.late != nil {
		t.Errorf("%+v", d)
	}
}

// An attempt never gets a port that an earlier one had.
func TestEachAttemptHasAPortOfItsOwn(t *testing.T) {
	n := &node{}
	seen := map[int]bool{}
	for range 200 {
		port, err := n.newPort()
		if err != nil {
			t.Fatal(err)
		}
		if seen[port] {
			t.Fatalf("port %d again", port)
		}
		seen[port] = true
	}
}
