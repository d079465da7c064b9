package strategy

import (
	"testing"
	"time"
)

var gpuNoon = time.Unix(1_700_000_000, 0)

// secondOf is a time some seconds after noon.
func secondOf(seconds int) time.Time { return gpuNoon.Add(time.Duration(seconds) * time.Second) }

// TestGPUTimeIsLostUpToTheResumedCheckpoint: each case has the spans of a run on two GPUs.
func TestGPUTimeIsLostUpToTheResumedCheckpoint(t *testing.T) {
	span := func(from, to int) GPUSpan { return GPUSpan{Started: secondOf(from), Ended: secondOf(to), GPUs: 2} }
	rescued := func(from, to int) GPUSpan {
		s := span(from, to)
		s.Rescued = s.Started
		return s
	}
	resumed := func(s GPUSpan, saved int) GPUSpan {
		s.Resumed = secondOf(saved)
		return s
	}
	inPlace := span(0, 100)
	inPlace.Rescued = secondOf(30)
	cutOff := GPUSpan{Started: secondOf(0), GPUs: 2}
	end := time.Time{} // the run trained
	for name, test := range map[string]struct {
		spans []GPUSpan
		saved time.Time // the checkpoint that is resumed next
		want  GPUTime
	}{
		"trained":                     {[]GPUSpan{span(0, 100)}, end, GPUTime{Total: 200}},
		"from the beginning":          {[]GPUSpan{span(0, 10), rescued(11, 100)}, end, GPUTime{Total: 198, Lost: 20, Rescued: 178, Rescues: 1}},
		"from a checkpoint":           {[]GPUSpan{span(0, 10), resumed(rescued(11, 100), 7)}, end, GPUTime{Total: 198, Lost: 6, Rescued: 178, Rescues: 1}},
		"two rescues, one checkpoint": {[]GPUSpan{span(0, 10), resumed(rescued(11, 20), 7), resumed(rescued(21, 30), 7)}, end, GPUTime{Total: 56, Lost: 24, Rescued: 18, Rescues: 2}},
		"back to an older checkpoint": {[]GPUSpan{span(0, 10), resumed(span(11, 20), 9), resumed(span(21, 30), 4)}, end, GPUTime{Total: 56, Lost: 12 + 18}},
		"a checkpoint of another run": {[]GPUSpan{resumed(span(0, 10), -500)}, end, GPUTime{Total: 20}},
		"next from the beginning":     {[]GPUSpan{span(0, 10)}, secondOf(-1), GPUTime{Total: 20, Lost: 20}},
		"next from a checkpoint":      {[]GPUSpan{span(0, 10), rescued(11, 20)}, secondOf(15), GPUTime{Total: 38, Lost: 20 + 10, Rescued: 8, Rescues: 1}},
		"in place":                    {[]GPUSpan{inPlace}, end, GPUTime{Total: 200, Rescued: 140, Rescues: 1}},
		"in place, then lost":         {[]GPUSpan{inPlace}, secondOf(20), GPUTime{Total: 200, Lost: 160, Rescues: 1}},
		"cut off":                     {[]GPUSpan{cutOff, span(50, 100)}, end, GPUTime{Total: 100, AtLeast: true}},
		"cut off after a checkpoint":  {[]GPUSpan{cutOff, resumed(span(50, 100), 40)}, end, GPUTime{Total: 180, AtLeast: true}},
		"the clock went back":         {[]GPUSpan{span(100, 50), span(20, 30)}, end, GPUTime{Total: 20}},
	} {
		var a GPUAccount
		for _, s := range test.spans {
			a.Add(s)
		}
		got := a.Trained()
		if !test.saved.IsZero() {
			got = a.Resumed(test.saved)
			if again := a.Resumed(test.saved); again != got {
				t.Errorf("%s: asked again %+v", name, again)
			}
		}
		if got != test.want {
			t.Errorf("%s: %+v, want %+v", name, got, test.want)
		}
	}
}
