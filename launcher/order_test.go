package launcher

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/gpurun/gpurun/strategy"
)

// A journal is in order after a kill at any time. It is not after manual changes or disk errors.
func TestCheckOrder(t *testing.T) {
	began := Began{}
	started := func(n int) Event { return Started{N: n} }
	ended := func(n int) Event { return Ended{strategy.Evidence{Attempt: n, Ranks: 1}} }
	exited := func(n int) Event { return Exited{strategy.Evidence{Attempt: n, Ranks: 1}} }
	unstarted := func(n int) Event {
		return Ended{strategy.Evidence{Attempt: n, Unstarted: &strategy.Unstarted{Reason: "short"}}}
	}
	again := Decided{Decision: strategy.Decision{Relaunch: true}}
	decided := func(o strategy.Outcome) Event { return Decided{Decision: strategy.Decision{Outcome: o}} }
	finished := func(o strategy.Outcome, code int) Event { return Finished{Verdict: Verdict{Outcome: o, Code: code}} }
	note := Noticed{}
	with := func(p strategy.Plan) Event { return Started{Plan: p} }

	for name, test := range map[string]struct {
		events []Event
		want   string // empty if in order
		at     int
	}{
		"nothing":                     {nil, "", 0},
		"a notice before all":         {[]Event{note, began}, "", 0},
		"trained":                     {[]Event{began, started(0), note, ended(0), decided(strategy.Trained), finished(strategy.Trained, 0)}, "", 0},
		"rescued":                     {[]Event{began, started(0), ended(0), again, started(1), ended(1), decided(strategy.Trained)}, "", 0},
		"cut off in an attempt":       {[]Event{began, started(0), began, started(1), ended(1), again}, "", 0},
		"decided by the next gpurun":  {[]Event{began, started(0), ended(0), began, again, began, started(1)}, "", 0},
		"stopped, and gone on with":   {[]Event{began, started(0), ended(0), again, finished(strategy.Stopped, 143), began, started(1)}, "", 0},
		"stopped before anything":     {[]Event{began, finished(strategy.Stopped, 130), began, started(0)}, "", 0},
		"stopped while ranks start":   {[]Event{began, started(0), finished(strategy.Stopped, 143), began, started(1)}, "", 0},
		"decided anew after a stop":   {[]Event{began, started(0), ended(0), decided(strategy.Stopped), finished(strategy.Stopped, 143), began, again, started(1)}, "", 0},
		"retried":                     {[]Event{began, started(0), ended(0), decided(strategy.Retry), finished(strategy.Retry, 75), began, started(1)}, "", 0},
		"never started":               {[]Event{began, started(0), unstarted(0), began, started(1), ended(1)}, "", 0},
		"not even written":            {[]Event{began, unstarted(0), began, unstarted(1), began, started(2)}, "", 0},
		"a later one not started":     {[]Event{began, started(0), ended(0), again, unstarted(1), decided(strategy.Failed), finished(strategy.Failed, 1)}, "", 0},
		"trained again by an old one": {[]Event{began, started(0), ended(0), decided(strategy.Trained), began, started(1)}, "", 0},

		"a step done again":            {[]Event{began, started(0), InPlace{}, exited(0), InPlace{}, ended(0), decided(strategy.Trained)}, "", 0},
		"a step of no attempt":         {[]Event{began, InPlace{}}, "attempt 0 did a step again, and does not run", 1},
		"a step of another attempt":    {[]Event{began, started(0), InPlace{N: 2}}, "attempt 2 did a step again, and does not run", 2},
		"its ranks ended before":       {[]Event{began, started(0), exited(0), ended(0), decided(strategy.Trained)}, "", 0},
		"cut off after its ranks":      {[]Event{began, started(0), exited(0), began, decided(strategy.Trained)}, "", 0},
		"ranks that do not run":        {[]Event{began, exited(0)}, "the ranks of attempt 0 have ended, and do not run", 1},
		"ranks that ended twice":       {[]Event{began, started(0), exited(0), exited(0)}, "the ranks of attempt 0 have ended", 3},
		"decided without its end":      {[]Event{began, started(0), again}, "a decision follows no attempt that has ended", 2},
		"decided twice":                {[]Event{began, started(0), ended(0), again, again}, "a decision follows no attempt", 4},
		"decided of nothing":           {[]Event{began, decided(strategy.Trained)}, "a decision follows no attempt", 1},
		"the decision is missing":      {[]Event{began, started(0), ended(0), started(1)}, "attempt 1 is started, and nothing was decided after attempt 0", 3},
		"also after a restart":         {[]Event{began, started(0), ended(0), began, started(1)}, "nothing was decided after attempt 0", 4},
		"an attempt is missing":        {[]Event{began, started(0), ended(0), again, started(2)}, "attempt 2 is started where attempt 1 would be", 4},
		"the first attempt is missing": {[]Event{began, started(3)}, "attempt 3 is started where attempt 0 would be", 1},
		"below zero":                   {[]Event{began, started(-1)}, "attempt -1 is started", 1},
		"a number twice":               {[]Event{began, started(0), ended(0), again, started(0)}, "attempt 0 is started where attempt 1 would be", 4},
		"two at once":                  {[]Event{began, started(0), started(1)}, "attempt 0 has not ended", 2},
		"ended twice":                  {[]Event{began, started(0), ended(0), ended(0)}, "attempt 0 has ended, and was not started", 3},
		"another has ended":            {[]Event{began, started(0), ended(7)}, "attempt 7 has ended where attempt 0 runs", 2},
		"ended after a restart":        {[]Event{began, started(0), began, ended(0)}, "was not started", 3},
		"no begin":                     {[]Event{started(0)}, "started comes before the run has begun", 0},
		"after the verdict":            {[]Event{began, started(0), ended(0), decided(strategy.Failed), finished(strategy.Failed, 1), began}, "began comes after the verdict", 5},
		"a verdict of its own":         {[]Event{began, started(0), ended(0), again, finished(strategy.Trained, 0)}, `the verdict "trained" is not what was decided`, 4},
		"a verdict in an attempt":      {[]Event{began, started(0), finished(strategy.Failed, 1)}, `the verdict "failed" is not what was decided`, 2},
		"another verdict":              {[]Event{began, started(0), ended(0), decided(strategy.Failed), finished(strategy.Trained, 0)}, `the verdict "trained" is not what was decided`, 4},
		"a verdict in between":         {[]Event{began, started(0), ended(0), finished(strategy.Stopped, 143)}, "is not what was decided", 3},
		"an empty verdict":             {[]Event{began, finished("", 0)}, `the verdict's outcome is ""`, 1},
		"a code that does not fit":     {[]Event{began, started(0), ended(0), decided(strategy.Failed), finished(strategy.Failed, 0)}, `outcome is "failed", and its code 0`, 4},
		"an unknown outcome":           {[]Event{began, started(0), ended(0), decided("lost")}, `outcome is "lost"`, 3},
		"goes on after an end":         {[]Event{began, started(0), ended(0), decided(strategy.Trained), started(1)}, "that was not decided", 4},
		"a plan with a strange knob":   {[]Event{began, with(strategy.Plan{"batch": "1"})}, `the knob "batch"`, 1},
		"a plan below zero":            {[]Event{Began{Plan: strategy.Plan{strategy.MicroBatchSize: "-8"}}}, "cannot be negative", 0},
		"a decision's plan":            {[]Event{began, started(0), ended(0), Decided{Decision: strategy.Decision{Relaunch: true, Next: strategy.Plan{strategy.Precision: "fp4"}}}}, `"fp4"`, 3},
		"ranks below zero":             {[]Event{began, started(0), Ended{strategy.Evidence{Ranks: -1}}}, "-1 ranks", 2},
	} {
		err := CheckOrder(test.events)
		var misplaced *JournalFault
		switch {
		case test.want == "" && err != nil:
			t.Errorf("%s: %v", name, err)
		case test.want != "" && (!errors.As(err, &misplaced) || misplaced.Event != test.at || !strings.Contains(err.Error(), test.want)):
			t.Errorf("%s: %v, want %q of event %d", name, err, test.want, test.at)
		}
	}
}

// Every recorded run is in order, wherever it is cut off.
func TestRecordedRunsAreInOrder(t *testing.T) {
	for name, events := range recorded(t) {
		for cut := range len(events) + 1 {
			if err := CheckOrder(events[:cut]); err != nil {
				t.Errorf("%s, cut at %d: %v", name, cut, err)
			}
			if began := only[Began](events[:cut]); cut > 0 && len(began) > 0 && !slices.ContainsFunc(events[:cut], func(e Event) bool { _, f := e.(Finished); return f }) {
				if err := CheckOrder(append(slices.Clone(events[:cut]), began[0])); err != nil {
					t.Errorf("%s, cut at %d and begun again: %v", name, cut, err)
				}
			}
		}
	}
}
