package strategy

import (
	"strings"
	"testing"
)

// A notice about the end of the time makes an attempt count as cut short, and not as trained,
// failed or stopped by a user.
func TestNoticeCutsAttemptShort(t *testing.T) {
	exit := func(rank, code, signal int, stopped bool) Fact {
		return Fact{Rank: rank, Source: "exit", Content: &Exit{Code: code, Signal: signal, Stopped: stopped}}
	}
	steps := func(last, total int) Fact {
		return Fact{Rank: 0, Source: "stdout", Content: &Progress{Steps: last, First: 1, Last: last, Total: total}}
	}
	stop := &Notice{Signal: "SIGUSR1", Number: 10, Stop: true}
	caught := &Notice{Signal: "SIGUSR1", Number: 10, Stop: true, Caught: true}
	elsewhere := &Notice{Signal: "SIGUSR1", Number: 10, Caught: true}
	for name, test := range map[string]struct {
		notice *Notice
		signal int // by which gpurun was stopped
		facts  []Fact
		rule   string
		says   string
	}{
		"no notice":                      {nil, 0, []Fact{exit(0, 0, 0, false)}, "trained", ""},
		"stopped in time":                {stop, 15, []Fact{exit(0, 143, 15, true)}, "cut-short", "stopped after the notice SIGUSR1"},
		"stopped, having caught it":      {caught, 15, []Fact{exit(0, 0, 0, true)}, "cut-short", "stopped after the notice SIGUSR1"},
		"somebody's stop":                {elsewhere, 15, []Fact{exit(0, 143, 15, true)}, "stopped", ""},
		"trained in time":                {stop, 0, []Fact{exit(0, 0, 0, false)}, "trained", ""},
		"ended early":                    {caught, 0, []Fact{steps(40, 100), exit(0, 0, 0, false)}, "cut-short", "the ranks ended at step 40 of 100"},
		"ended early, elsewhere":         {elsewhere, 0, []Fact{steps(40, 100), exit(0, 0, 0, false)}, "cut-short", "step 40 of 100"},
		"made its last step":             {caught, 0, []Fact{steps(100, 100), exit(0, 0, 0, false)}, "trained", ""},
		"ended at an unknown step":       {caught, 0, []Fact{steps(40, 0), exit(0, 0, 0, false)}, "cut-short", "whether they trained to the end is not known"},
		"ended, and nobody was to stop":  {elsewhere, 0, []Fact{steps(40, 0), exit(0, 0, 0, false)}, "trained", ""},
		"the signal itself ended a rank": {stop, 0, []Fact{exit(0, 138, 10, false)}, "cut-short", "the notice SIGUSR1 ended rank 0, which has no handler for it"},
		"and so below a shell":           {elsewhere, 0, []Fact{exit(0, 138, 0, false)}, "cut-short", "ended rank 0"},
		"a failure of its own":           {caught, 0, []Fact{exit(0, 3, 0, false)}, "job-failed", ""},
	} {
		e := Evidence{Ranks: 1, Facts: test.facts, Notice: test.notice, StopSignal: test.signal}
		a := Attempt{Plan: plain, Diagnosis: Diagnose(e), CutShort: e.CutShort(), StopSignal: test.signal}
		got := Decide(defaults, gpt(1), []Attempt{a}, h100)
		if got.Rule != test.rule || !strings.Contains(a.CutShort, test.says) || (a.CutShort == "") != (test.says == "") {
			t.Errorf("%s: rule %q, %q; want %q, %q", name, got.Rule, a.CutShort, test.rule, test.says)
		}
		if got.Rule == "cut-short" && (got.Outcome != Retry || got.Code != CodeRetry) {
			t.Errorf("%s: %+v", name, got)
		}
	}
}
