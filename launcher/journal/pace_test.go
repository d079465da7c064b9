package journal

import (
	"math"
	"testing"
	"time"
)

func TestPace(t *testing.T) {
	start := time.Unix(1700000000, 0)
	at := func(s float64) time.Time { return start.Add(time.Duration(s * float64(time.Second))) }
	var p stepPace
	expect := func(what string, now time.Time, rate float64, left time.Duration, known bool) {
		t.Helper()
		gotLeft, gotKnown := p.left(100)
		if got := p.rate(now); math.Abs(got-rate) > .01 || gotKnown != known || (gotLeft-left).Abs() > time.Second {
			t.Errorf("%s: %.3f a second, %s left (%v), want %.3f, %s (%v)", what, got, gotLeft, gotKnown, rate, left, known)
		}
	}
	expect("nothing", at(0), 0, 0, false)
	p.add(at(0), 0)
	p.add(at(40), 1) // after compiling
	expect("one step", at(41), 0, 0, false)
	for s := 1; s <= 20; s++ {
		p.add(at(40+float64(s)), 1+2*s)
	}
	expect("two a second", at(60), 2, 29500*time.Millisecond, true)
	p.add(at(61), 41) // none came
	expect("a short silence", at(62), 2, 29500*time.Millisecond, true)
	expect("a long one", at(80), 1, 29500*time.Millisecond, true)
	for s := 1; s <= 10; s++ {
		p.add(at(60+20*float64(s)), 41+s)
	}
	expect("it became slow", at(260), .05, time.Duration(49/(50./220)*float64(time.Second)), true)
	p.add(at(261), 1) // another epoch of a job that counts anew
	expect("counted anew", at(261), 0, 0, false)
	p.add(at(262), 200)
	expect("more than all", at(262), 199, 0, true)
}
