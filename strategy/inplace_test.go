package strategy

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gpurun/gpurun/strategy/cause"
)

// changeable is a job whose process can recompute blocks and offload activations.
func changeable() Job {
	return Job{Ranks: 1, LocalRanks: 1, DataParallel: 1, Knobs: map[Knob]Range{
		ActivationCheckpointing: {By: ByHook, Values: []Value{"none", "full"}}, OffloadActivations: {By: ByHook, Values: []Value{"none", "cpu"}},
		LossParts:    {Absent: "no code that was read uses PyTorch"},
		ForwardParts: {Absent: "no code that was read uses PyTorch"},
	}}
}

// repeat is a step of a rank that was done again with activation checkpointing.
func repeat(rank, step int, elements, longest int64) InPlace {
	return InPlace{Rank: rank, Remedy: RemedyCheckpointing, Phase: "forward", Step: step, LastStep: step, Times: 1, Elements: elements, Longest: longest}
}

func TestPolicyJobAndPlanDecideWhatIsAllowedInPlace(t *testing.T) {
	both := []Remedy{RemedyCheckpointing, RemedyOffloadActivations}
	for name, test := range map[string]struct {
		change      func(*Policy, *Job)
		plan        Plan
		accelerator string
		want        []Remedy // nil: nothing at all
	}{
		"a GPU": {nil, nil, "cuda", both},
		"a cross entropy": {
			func(_ *Policy, j *Job) { j.Knobs[LossParts] = Range{By: ByHook, Values: []Value{"off", "on"}} }, nil, "cuda",
			[]Remedy{RemedyCheckpointing, RemedyLossParts, RemedyOffloadActivations},
		},
		"parts of the batch": {
			func(_ *Policy, j *Job) { j.Knobs[ForwardParts] = Range{By: ByHook, Values: ForwardParts.words()} }, nil, "cpu",
			[]Remedy{RemedyCheckpointing, RemedySplit},
		},
		"never the parts": {
			func(p *Policy, j *Job) {
				p.Never, j.Knobs[ForwardParts] = []string{"split"}, Range{By: ByHook, Values: ForwardParts.words()}
			}, nil, "cuda", both,
		},
		"the CPU":              {nil, nil, "cpu", both[:1]},
		"switched off":         {func(p *Policy, _ *Job) { p.InPlace = false }, nil, "cuda", nil},
		"mode off":             {func(p *Policy, _ *Job) { p.Mode = Off }, nil, "cuda", nil},
		"mode ladder":          {func(p *Policy, _ *Job) { p.Mode = Ladder }, nil, "cuda", both},
		"hooks = false":        {func(_ *Policy, j *Job) { j.NotInside = "launch.hooks = false" }, nil, "cuda", nil},
		"never the remedy":     {func(p *Policy, _ *Job) { p.Never = []string{"checkpointing"} }, nil, "cuda", both[1:]},
		"never the knob":       {func(p *Policy, _ *Job) { p.Never = []string{"offload_activations"} }, nil, "cuda", both[:1]},
		"never both":           {func(p *Policy, _ *Job) { p.Never = []string{"checkpointing", "offload-activations"} }, nil, "cuda", []Remedy{}},
		"the plan has it":      {nil, Plan{ActivationCheckpointing: "full"}, "cuda", both[1:]},
		"the plan has a part":  {nil, Plan{ActivationCheckpointing: "selective"}, "cuda", both},
		"the command rules it": {func(_ *Policy, j *Job) { j.Knobs[ActivationCheckpointing] = Range{Absent: "the command has --no-ckpt"} }, nil, "cuda", both[1:]},
	} {
		t.Run(name, func(t *testing.T) {
			p, j := Policy{Mode: Predict, InPlace: true}, changeable()
			if test.change != nil {
				test.change(&p, &j)
			}
			got := AllowInPlace(p, j, nil, test.plan, test.accelerator)
			if test.want == nil {
				if got != nil {
					t.Fatalf("allowed %+v", got)
				}
				return
			}
			if got == nil || !slices.Equal(got.Remedies, test.want) || !got.Optimizer || got.BeforeLoss != (len(test.want) > 0) || got.Armed != nil {
				t.Errorf("allowed %+v, want %v", got, test.want)
			}
		})
	}
}

// What calls needed once is on from the beginning, with the same plan and for the smallest sizes of all ranks.
func TestRemediesOfEarlierAttemptsAreArmed(t *testing.T) {
	plan, smaller := Plan{MicroBatchSize: "8"}, Plan{MicroBatchSize: "4"}
	before := []Attempt{{Plan: plan, InPlace: []InPlace{repeat(0, 3, 4096, 512), repeat(1, 3, 2048, 1024)}}, {Plan: smaller}}
	earlier := &ArmedPlan{plan, []ArmedRemedy{{RemedyCheckpointing, 1000, 0, 0, 0}, {RemedyOffloadActivations, 8192, 0, 0, 0}}}
	for name, test := range map[string]struct {
		job     *ArmedPlan
		history []Attempt
		next    Plan
		never   []string
		want    []ArmedRemedy
	}{
		"nothing known":       {nil, nil, plan, nil, nil},
		"this run":            {nil, before, plan, nil, []ArmedRemedy{{RemedyCheckpointing, 2048, 512, 0, 0}}},
		"another plan":        {nil, before, smaller, nil, nil},
		"calls of no size":    {nil, []Attempt{{Plan: plan, InPlace: []InPlace{repeat(0, 3, 0, 0)}}}, plan, nil, nil}, // in an evaluation
		"an earlier run":      {earlier, nil, plan, nil, earlier.Remedies},
		"an earlier run's":    {earlier, nil, smaller, nil, nil},
		"both":                {earlier, before, plan, nil, []ArmedRemedy{{RemedyCheckpointing, 1000, 512, 0, 0}, {RemedyOffloadActivations, 8192, 0, 0, 0}}},
		"forbidden meanwhile": {earlier, before, plan, []string{"checkpointing"}, []ArmedRemedy{{RemedyOffloadActivations, 8192, 0, 0, 0}}},
	} {
		j := changeable()
		j.Armed = test.job
		got := AllowInPlace(Policy{InPlace: true, Never: test.never}, j, test.history, test.next, "cuda")
		if diff := cmp.Diff(test.want, got.Armed); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
	if earlier.Remedies[0].Longest != 0 {
		t.Errorf("the remembered sizes were changed: %+v", earlier.Remedies)
	}
}

// A batch in four parts needs other sizes than one in two. The remedies are in their order.
func TestRemediesAreArmedForEachNumberOfParts(t *testing.T) {
	in := func(remedy Remedy, parts int, elements int64) InPlace {
		r := repeat(0, 1, elements, 0)
		r.Remedy, r.Parts = remedy, parts
		return r
	}
	got := Arm(nil, []InPlace{in(RemedyOffloadActivations, 0, 512), in(RemedySplit, 4, 4096), in(RemedySplit, 2, 2048)})
	if diff := cmp.Diff([]ArmedRemedy{{RemedySplit, 2048, 0, 2, 0}, {RemedySplit, 4096, 0, 4, 0}, {RemedyOffloadActivations, 512, 0, 0, 0}}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// The process that acts in place reports no setting that did not take effect, and no rank differs from the others.
func TestRepeatsInPlaceChangeNoSetting(t *testing.T) {
	j := changeable()
	j.Written = Plan{ActivationCheckpointing: "none", MicroBatchSize: "8"}
	for name, test := range map[string]struct {
		again []InPlace
		want  Plan
	}{
		"in place":     {[]InPlace{repeat(1, 3, 1, 1)}, Plan{MicroBatchSize: "8"}},
		"optimizer":    {[]InPlace{{Phase: "optimizer"}}, Plan{MicroBatchSize: "8", ActivationCheckpointing: "full"}},
		"not in place": {nil, Plan{MicroBatchSize: "8", ActivationCheckpointing: "full"}},
	} {
		e := Evidence{Plan: j.Written, Ranks: 2}
		e.Add(Fact{Rank: 0, Content: &ProcessReport{PID: 1, Settings: Plan{MicroBatchSize: "8"}}})
		e.Add(Fact{Rank: 1, Content: &ProcessReport{PID: 2, Settings: Plan{MicroBatchSize: "8", ActivationCheckpointing: "full"}, InPlace: test.again}})
		if diff := cmp.Diff(test.want, e.Observed(j)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

func TestRepeatsOfARanksProcessesAreOneEntry(t *testing.T) {
	e := Evidence{Ranks: 1}
	one, other := repeat(0, 3, 4096, 512), repeat(0, 7, 2048, 1024)
	one.Seconds, other.Seconds, other.Times = secondsOf(.5), secondsOf(1), 3
	backward := repeat(0, 9, 1, 1)
	backward.Phase = "backward"
	e.Add(Fact{Rank: 0, Content: &ProcessReport{PID: 5, InPlace: []InPlace{one}}})
	e.Add(Fact{Rank: 0, Content: &ProcessReport{PID: 4, InPlace: []InPlace{other, backward}, InPlaceRefused: &InPlaceRefusal{"forward", 9, "the model is compiled", nil}}})
	e.Add(Fact{Rank: 0, Content: &ProcessReport{PID: 6, InPlaceRefused: &InPlaceRefusal{"forward", 12, "the model is compiled", nil}}})
	got := e.InPlace()
	if len(got) != 2 || got[0].Times != 4 || got[0].Seconds != secondsOf(1.5) || got[0].Step != 3 || got[0].LastStep != 7 || got[0].Elements != 2048 || got[0].Longest != 512 {
		t.Errorf("repeats %+v", got)
	}
	if rank, refused := e.InPlaceRefused(); rank != 0 || refused.Step != 12 {
		t.Errorf("refused %+v on rank %d", refused, rank)
	}
	all := slices.Repeat([]InPlace{one}, 2*MostInPlace)
	for i := range all {
		all[i].Parts = i + 2
	}
	e.Add(Fact{Rank: 0, Content: &ProcessReport{PID: 5, InPlace: all}})
	if got := e.InPlace(); len(got) != MostInPlace {
		t.Errorf("%d kinds of repeats", len(got))
	}
}

func secondsOf(s float64) (out Seconds) {
	text, _ := json.Marshal(s)
	_ = out.UnmarshalJSON(text)
	return out
}

// Ranks that repeat one step do so at the same time, and a step that several remedies repeated is one; other
// steps add up.
func TestCostOfRepeats(t *testing.T) {
	a, b, c := repeat(0, 3, 1, 1), repeat(1, 3, 1, 1), repeat(1, 8, 1, 1)
	b.Times, c.LastStep = 2, 11
	a.Seconds, b.Seconds, c.Seconds, c.Times, c.Phase = secondsOf(.5), secondsOf(.75), secondsOf(2), 4, "backward"
	if steps, took := InPlaceCost([]InPlace{a, b, c}); steps != 5 || took != secondsOf(2.75) {
		t.Errorf("%d steps, %s", steps, took)
	}
	want := "5 steps repeated in place with activation checkpointing (2.75 s)"
	if got := InPlaceWords([]InPlace{a, b, c}); got != want {
		t.Errorf("%q, want %q", got, want)
	}
	in := func(parts int) InPlace {
		r := repeat(0, 3, 1, 1)
		r.Remedy, r.Parts = RemedySplit, parts
		return r
	}
	if got := InPlaceWords([]InPlace{in(2), a, in(16), in(4)}); !strings.Contains(got, "repeated in place with activation checkpointing and in 2 to 16 parts (") {
		t.Errorf("parts that grew: %q", got)
	}
}

func TestSentencesAboutRepeats(t *testing.T) {
	full := repeat(1, 1841, 65536, 4096)
	full.Requested, full.Seconds = 2<<30, secondsOf(.29)
	with := func(change func(*InPlace)) InPlace { r := full; change(&r); return r }
	for want, got := range map[string]string{
		"rank 1: out of memory in forward at step 1841 (tried to allocate 2.0 GiB); step repeated with activation checkpointing (0.29 s)": full.Sentence(),
		"rank 1: out of memory in forward at step 1841; step repeated with activation checkpointing (0.29 s)":                             with(func(r *InPlace) { r.Requested = 0 }).Sentence(),
		"rank 1: out of memory in backward at step 1841 (tried to allocate 2.0 GiB); step repeated in 4 parts (0.29 s)":                   with(func(r *InPlace) { r.Remedy, r.Phase, r.Parts = "", "backward", 4 }).Sentence(),
		"rank 1: out of memory in optimizer at step 1841 (tried to allocate 2.0 GiB); step repeated a few parameters at a time (0.29 s)":  with(func(r *InPlace) { r.Remedy, r.Phase = "", "optimizer" }).Sentence(),
		"rank 1: little memory left for the optimizer at step 1841; step done a few parameters at a time (0.29 s)":                        with(func(r *InPlace) { r.Remedy, r.Phase, r.Requested = "", "optimizer", 0 }).Sentence(),
		"rank 1: little memory left for the loss at step 1841; forward repeated with activation checkpointing (0.29 s)":                   with(func(r *InPlace) { r.Phase, r.Requested = "loss", 0 }).Sentence(),
		"rank 1: not enough memory for the loss at step 1841 (tried to allocate 2.0 GiB); step done with the loss in parts (0.29 s)":      with(func(r *InPlace) { r.Phase, r.Remedy = "loss", RemedyLossParts }).Sentence(),
		"rank 1: out of memory in forward 13 times, from step 1841 to 1900; steps repeated with activation checkpointing (0.29 s in all)": with(func(r *InPlace) { r.Times, r.LastStep = 13, 1900 }).Repeats(),
		"from then on, inputs as large as these (65536 elements, longest dimension 4096) are recomputed at once":                          full.Later(),
		"": with(func(r *InPlace) { r.Elements, r.Longest = 0, 0 }).Later(),
	} {
		if got != want {
			t.Errorf("got  %q\nwant %q", got, want)
		}
	}
}

// The next run begins with as few recomputed blocks as were enough in all ranks.
func TestArmedBlocks(t *testing.T) {
	on := func(rank int, trials ...Trial) InPlace {
		r := repeat(rank, 3, 4096, 512)
		r.Trials = trials
		return r
	}
	kept := func(n int) Trial { return Trial{Recomputed: n, Blocks: 12, Kept: true} }
	all, loss := Trial{Recomputed: 12, Blocks: 12}, on(0)
	loss.Remedy = RemedyLossParts
	later := on(0)
	later.Phase = "backward"
	for name, test := range map[string]struct {
		ranks []InPlace
		want  []ArmedRemedy
	}{
		"not known":           {[]InPlace{on(0)}, []ArmedRemedy{{RemedyCheckpointing, 4096, 512, 0, 0}}},
		"not found yet":       {[]InPlace{on(0, all)}, []ArmedRemedy{{RemedyCheckpointing, 4096, 512, 0, 0}}},
		"found":               {[]InPlace{on(0, all, kept(5))}, []ArmedRemedy{{RemedyCheckpointing, 4096, 512, 0, 5}}},
		"in two phases":       {[]InPlace{later, on(0, all, kept(5))}, []ArmedRemedy{{RemedyCheckpointing, 4096, 512, 0, 5}}},
		"the most of ranks":   {[]InPlace{on(0, kept(2)), on(1, kept(7))}, []ArmedRemedy{{RemedyCheckpointing, 4096, 512, 0, 7}}},
		"in one rank":         {[]InPlace{on(0, kept(2)), on(1)}, []ArmedRemedy{{RemedyCheckpointing, 4096, 512, 0, 0}}},
		"none, with the loss": {[]InPlace{on(0), loss, {Trials: []Trial{kept(0)}}}, []ArmedRemedy{{RemedyLossParts, 4096, 512, 0, 0}}},
	} {
		if diff := cmp.Diff(test.want, Arm(nil, test.ranks)); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
	if got := (ArmedRemedy{Remedy: RemedyCheckpointing, Elements: 4096, Longest: 512, Blocks: 5}).words(); !strings.HasPrefix(got, "checkpointing of the first 5 blocks (") {
		t.Error(got)
	}
}

// A run that was rescued in place and trained has one attempt, whose reason has the cost.
func TestTrainedAfterRepeatsInPlace(t *testing.T) {
	one := repeat(0, 3, 1, 1)
	one.Seconds = secondsOf(.25)
	d := Decide(Policy{Mode: Predict, InPlace: true}, changeable(), []Attempt{{Diagnosis: Diagnosis{Rank: -1}, InPlace: []InPlace{one}}}, Inventory{})
	if d.Outcome != Trained || !strings.HasSuffix(d.Reason, "trained; 1 step repeated in place with activation checkpointing (0.25 s)") {
		t.Errorf("%s: %s", d.Outcome, d.Reason)
	}
}

// Steps that were done again in place change nothing about a later failure: growing memory stays a leak, another process's
// memory is waited for, and only a plan that ended by an error of memory has run out.
func TestFailuresAfterRepeatsInPlace(t *testing.T) {
	report := at(0, 1, Fact{Source: "probe", Content: &ProcessReport{PID: 1, InPlace: []InPlace{repeat(0, 3, 1, 1)}}})
	if d := Diagnose(Evidence{Facts: append(append(says(0, 1, leaking("mem", oomForward)), report), exits(0, 9, 1)...)}); d.Growth == nil || !d.OutOfMemory() {
		t.Errorf("a leak: %+v", d)
	}
	again := []InPlace{repeat(0, 3, 1, 1)}
	occupied, failed, rescued := ended(0, plain, Diagnosis{Cause: cause.GPUOccupied, Fatal: true}), ended(0, plain, oom(cause.Backward)), ended(0, plain, Diagnosis{Rank: -1})
	occupied.InPlace, failed.InPlace, rescued.InPlace = again, again, again
	p := defaults
	p.InPlace = true
	if d := Decide(p, gpt(1), []Attempt{occupied}, h100); d.Rule != "gpu-occupied" || d.Remedy != RemedyWait {
		t.Errorf("another process's memory: %+v", d)
	}
	if d := Decide(p, gpt(1), []Attempt{failed}, h100); d.Rule != "out-of-memory" || !d.Relaunch || len(plain.Changed(d.Next)) == 0 {
		t.Errorf("out of memory in the end: %+v", d)
	}
	s := &situation{policy: p, job: gpt(1), inventory: h100}
	s.look([]Attempt{rescued})
	if ranOut := s.ranOut(); len(ranOut) > 0 || hopeless(plain, ranOut) {
		t.Errorf("a plan that was rescued in place counts as one that ran out: %v", ranOut)
	}
}

// A remedy that was on in the process when memory ran out again is not tried as a setting of the same size: neither
// alone nor with the others that were on.
func TestRemediesThatFailedInPlaceAreNotRelaunched(t *testing.T) {
	refused := func(remedies ...Remedy) *InPlaceRefusal {
		return &InPlaceRefusal{Phase: "forward", Step: 3, Reason: "it is on already", Remedies: remedies}
	}
	full, offloaded, inParts := Plan{ActivationCheckpointing: "full"}, Plan{OffloadActivations: "cpu"}, Plan{LossParts: "on"}
	for name, test := range map[string]struct {
		refused   *InPlaceRefusal
		again     []InPlace
		out, left []Plan
	}{
		"nothing was tried":  {refused: refused(), left: []Plan{full, offloaded, inParts}},
		"no refusal":         {left: []Plan{full, offloaded, inParts}},
		"recomputed blocks":  {refused: refused(RemedyCheckpointing), out: []Plan{full, {ActivationCheckpointing: "selective"}}, left: []Plan{offloaded, full.With(offloaded), full.With(Plan{MicroBatchSize: "1"})}},
		"both":               {refused: refused(RemedyOffloadActivations, RemedyCheckpointing), out: []Plan{full, offloaded, full.With(offloaded)}, left: []Plan{inParts}},
		"the loss in parts":  {refused: refused(), again: []InPlace{{Rank: 0, Remedy: RemedyLossParts}}, out: []Plan{inParts}, left: []Plan{full}},
		"of another rank":    {refused: refused(), again: []InPlace{{Rank: 1, Remedy: RemedyLossParts}}, left: []Plan{inParts}},
		"parts of the batch": {refused: refused(RemedySplit), left: []Plan{{ForwardParts: "2"}, full}},
		"unknown words":      {refused: refused("wait", "", "nonsense"), left: []Plan{full}},
	} {
		t.Run(name, func(t *testing.T) {
			plan := Plan{MicroBatchSize: "8", ActivationCheckpointing: "none", OffloadActivations: "none", LossParts: "off", ForwardParts: "1"}
			failed := ended(0, plan, oom(cause.Forward))
			failed.InPlace, failed.InPlaceRefused = test.again, test.refused
			s := &situation{policy: defaults, job: gpt(1), inventory: h100}
			s.look([]Attempt{failed})
			ranOut := s.ranOut()
			for _, changes := range test.out {
				if !hopeless(plan.With(changes), ranOut) {
					t.Errorf("%v is tried again", changes)
				}
			}
			for _, changes := range test.left {
				if hopeless(plan.With(changes), ranOut) {
					t.Errorf("%v is not tried", changes)
				}
			}
		})
	}
}

// The allocator changes in place only where another attempt might have it changed, on CUDA.
func TestAllocatorInPlace(t *testing.T) {
	for name, test := range map[string]struct {
		change      func(*Policy, *Job)
		next        Plan
		accelerator string
		want        bool
	}{
		"usual":             {nil, Plan{Allocator: "default"}, "cuda", true},
		"on already":        {nil, Plan{Allocator: "expandable"}, "cuda", false},
		"the CPU":           {nil, Plan{Allocator: "default"}, "cpu", false},
		"the job's own":     {func(_ *Policy, j *Job) { j.Knobs[Allocator] = Range{Absent: "PYTORCH_CUDA_ALLOC_CONF sets it"} }, Plan{Allocator: "default"}, "cuda", false},
		"never":             {func(p *Policy, _ *Job) { p.Never = []string{"allocator"} }, Plan{Allocator: "default"}, "cuda", false},
		"no such allocator": {func(_ *Policy, j *Job) { delete(j.Knobs, Allocator) }, nil, "cuda", false},
	} {
		p, j := Policy{InPlace: true}, changeable()
		j.Knobs[Allocator] = Range{Values: Vocabulary(Allocator)}
		if test.change != nil {
			test.change(&p, &j)
		}
		if got := AllowInPlace(p, j, nil, test.next, test.accelerator).Allocator; got != test.want {
			t.Errorf("%s: permitted %t", name, got)
		}
	}
	one := repeat(0, 1, 4096, 64)
	one.Allocator = "expandable"
	if got := InPlaceWords([]InPlace{one}); !strings.Contains(got, "with activation checkpointing and with expandable segments (") {
		t.Error(got)
	}
	kept, words := KeptInPlace([]InPlace{one})
	if kept[Allocator] != "expandable" || words != "large inputs now recompute activations and all steps now use expandable segments" {
		t.Errorf("%v: %s", kept, words)
	}
}
