package strategy

import (
	"slices"
	"testing"
	"time"
)

func TestStragglers(t *testing.T) {
	const s, ms = Seconds(time.Second), Seconds(time.Millisecond)
	at := func(step int, took Seconds) Pace { return Pace{Step: step, Took: took, Idle: s} }
	own := func(data, forward Seconds) Pace { return Pace{Step: 100, Took: s, Data: data, Forward: forward} }
	for name, test := range map[string]struct {
		paces []Pace
		slow  []int // the slowest first
		words string
	}{
		"nobody":                      {nil, nil, ""},
		"alone":                       {[]Pace{at(9, s)}, nil, ""},
		"in step":                     {[]Pace{at(100, s), at(100, s), at(99, s), at(100, s)}, nil, ""},
		"one lags":                    {[]Pace{at(100, s), at(40, s), at(99, s)}, []int{1}, "at step 40, where the others are at 99"},
		"one has stopped":             {[]Pace{at(400, s), {Step: 40, Idle: 360 * s}, at(399, s)}, []int{1}, "at step 40, where the others are at 399; its last step was 6m0s ago"},
		"a few steps":                 {[]Pace{at(100, 60*s), at(91, 60*s)}, nil, ""},
		"many steps that take little": {[]Pace{at(10_000, s/100), at(9_000, s/100)}, nil, ""},
		"its steps take long":         {[]Pace{at(100, s), at(95, 4*s+s/10), at(100, s)}, []int{1}, "a step takes 4.1 s, and the others' 1 s"},
		"not so long":                 {[]Pace{at(100, s), at(95, 2*s), at(100, s)}, nil, ""},
		"of two the faster counts":    {[]Pace{at(100, 3*s), at(300, s)}, []int{0}, "a step takes 3 s, and the other's 1 s"},
		"a whole node":                {[]Pace{at(400, s), at(400, s), at(40, s), at(30, s)}, []int{3, 2}, "at step 30, where the others are at 400"},
		"one that makes no steps":     {[]Pace{at(100, s), at(0, 0), at(100, s)}, nil, ""},
		"one that is ahead":           {[]Pace{at(100, s), at(100, s), at(900, s/9)}, nil, ""},
		"no time is known":            {[]Pace{at(100, 0), at(40, 0)}, nil, ""},
		"all wait for its data":       {[]Pace{own(s/50, s/4), own(s/2, s/4), own(s/50, s/4)}, []int{1}, "a step of 1 s waits 0.5 s for data, and the others' 0.02 s"},
		"for its forward pass":        {[]Pace{own(ms, s/4), own(ms, s/4), own(ms, s/2)}, []int{2}, "the forward pass takes 0.5 s of a step's 1 s, and the others' 0.25 s"},
		"one waits for the other":     {[]Pace{own(ms, s/4), own(ms, s/2)}, []int{1}, "the forward pass takes 0.5 s of a step's 1 s, and the other's 0.25 s"},
		"the longest first":           {[]Pace{own(ms, ms), own(s/3, ms), own(ms, ms), own(s/2, ms), own(ms, ms)}, []int{3, 1}, ""},
		"one node of two":             {[]Pace{own(ms, ms), own(ms, ms), own(s/2, ms), own(s/2, ms)}, []int{2, 3}, "a step of 1 s waits 0.5 s for data, and the others' 0.001 s"},
		"a fifth of a step":           {[]Pace{own(ms, s/4), own(s/5, s/4), own(ms, s/4)}, nil, ""},
		"data instead of computing":   {[]Pace{own(ms, s/2), own(s/3, s/6), own(ms, s/2)}, nil, ""},
		"a little of both":            {[]Pace{own(ms, s/2), own(s*8/10, s/10)}, []int{1}, "a step of 1 s waits 0.8 s for data, and the other's 0.001 s"},
		"two kinds of ranks":          {[]Pace{own(ms, s/4), own(ms, s/2), own(ms, s/2)}, nil, ""},
		"all is sharded":              {[]Pace{own(ms, 0), own(s/2, 0), own(ms, 0)}, []int{1}, "a step of 1 s waits 0.5 s for data, and the others' 0.001 s"},
		"sharded on some":             {[]Pace{own(ms, s/2), own(s/2, 0), own(ms, s/2)}, []int{1}, "a step of 1 s waits 0.5 s for data, and the others' 0.001 s"},
		"one loads for all":           {[]Pace{own(s/2, s/4), own(0, s/4), own(0, s/4)}, nil, ""},
		"no loaders":                  {[]Pace{own(0, s/4), own(0, s/2), own(0, s/4)}, []int{1}, "the forward pass takes 0.5 s of a step's 1 s, and the others' 0.25 s"},
		"one forward pass is known":   {[]Pace{own(0, s/2), own(0, 0)}, nil, ""},
		"who waits is slow, too":      {[]Pace{own(0, 0), {Step: 100, Took: 3 * s, Data: 2 * s}, own(0, 0)}, []int{1}, "a step takes 3 s, and the others' 1 s"},
		"its step's time is unknown":  {[]Pace{own(0, 0), {Step: 100, Data: 2 * s}, own(0, 0)}, nil, ""},
		"a time that cannot be":       {[]Pace{at(100, s), at(100, -s), at(100, 1<<62)}, []int{2}, ""},
	} {
		for i := range test.paces {
			test.paces[i].Rank = i
		}
		var ranks []int
		slow := Stragglers(test.paces)
		for _, one := range slow {
			ranks = append(ranks, one.Rank)
		}
		if !slices.Equal(ranks, test.slow) {
			t.Errorf("%s: %v, want %v", name, ranks, test.slow)
		}
		if test.words != "" && len(slow) > 0 && slow[0].String() != test.words {
			t.Errorf("%s: %q, want %q", name, slow[0], test.words)
		}
	}
}

// When all ranks have stopped, the processes' counts show which is behind, if they are recent
// enough.
func TestBehind(t *testing.T) {
	at := func(source string, step int, each time.Duration) Fact {
		return Fact{Source: source, Content: &Progress{First: 1, Last: step, For: Seconds(time.Duration(step-1) * each)}}
	}
	probe := func(step int) Fact { return at("probe", step, 3*time.Second) }
	for name, test := range map[string]struct {
		progress []Fact
		ranks    []int
		words    string
	}{
		"in step":             {[]Fact{probe(42), probe(42), probe(42)}, nil, ""},
		"one step":            {[]Fact{probe(42), probe(42), probe(42), probe(41)}, []int{3}, "rank 3 of node 1 (n1) is behind the others: at step 41, and they are at 42"},
		"two":                 {[]Fact{probe(42), probe(40), probe(41), probe(42), probe(42)}, []int{1, 2}, "ranks 1–2 are behind the others: at step 40, and they are at 42"},
		"one is ahead":        {[]Fact{probe(42), probe(43), probe(42)}, nil, ""},
		"half of them":        {[]Fact{probe(41), probe(42)}, []int{0}, "rank 0 of node 0 (n0) is behind the others: at step 41, and they are at 42"},
		"short steps":         {[]Fact{at("probe", 42, time.Second), at("probe", 42, time.Second), at("probe", 40, time.Second)}, nil, ""},
		"lines are no counts": {[]Fact{at("stdout", 42, time.Hour), at("stdout", 42, time.Hour), at("stdout", 1, time.Hour)}, nil, ""},
		"one step was made":   {[]Fact{probe(1), probe(1), probe(0)}, nil, ""},
		"nothing":             {nil, nil, ""},
	} {
		ev := Evidence{Ranks: 4}
		ev.Add(Fact{Rank: -1, Source: "gpurun", Content: Nodes([]string{"n0", "n1"})})
		ev.Add(Fact{Rank: -1, Source: "gpurun", Content: &Stall{For: 60}})
		for rank := range test.progress {
			test.progress[rank].Rank = rank
		}
		if got := ev.Behind(test.progress); got != test.words {
			t.Errorf("%s: %q, want %q", name, got, test.words)
		}
		if pair := (&Evidence{Ranks: 2}).Behind(test.progress); name == "half of them" && pair != "rank 0 is behind the other: at step 41, and it is at 42" {
			t.Errorf("of two: %q", pair)
		}
		for _, f := range test.progress {
			ev.Add(f)
		}
		if d := Diagnose(ev); !slices.Equal(d.Ranks, test.ranks) {
			t.Errorf("%s: named %v, want %v", name, d.Ranks, test.ranks)
		}
	}
}
