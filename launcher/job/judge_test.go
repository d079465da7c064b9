package job

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gpurun/gpurun/launcher/ranks"
	"github.com/gpurun/gpurun/strategy"
	"github.com/gpurun/gpurun/strategy/cause"
	"github.com/gpurun/gpurun/strategy/memory"
	"github.com/gpurun/gpurun/test/testenv"
)

const gib = 1 << 30

var (
	lastNight = time.Date(2025, 11, 21, 3, 0, 0, 0, time.UTC)
	here      = Conditions{Code: "code", Recipe: "hf-trainer", Device: "NVIDIA H100", DeviceBytes: 80 * gib, Torch: "2.11", DataParallel: 2}
	asIs      = strategy.Plan{strategy.MicroBatchSize: "16", strategy.GradientAccumulationSteps: "1", strategy.ActivationCheckpointing: "none", strategy.Precision: "fp32"}
	smaller   = asIs.With(strategy.Plan{strategy.MicroBatchSize: "8", strategy.GradientAccumulationSteps: "2", strategy.ActivationCheckpointing: "full"})
	inBF16    = asIs.With(strategy.Plan{strategy.Precision: "bf16"})
)

// job is one that can turn what the plans above turn.
func job() strategy.Job {
	return strategy.Job{Written: asIs, DataParallel: 2, Ranks: 2, LocalRanks: 2, Knobs: map[strategy.Knob]strategy.Range{
		strategy.MicroBatchSize: {Min: 1}, strategy.GradientAccumulationSteps: {Min: 1},
		strategy.ActivationCheckpointing: {Values: []strategy.Value{"none", "full"}},
		strategy.Precision:               {Values: []strategy.Value{"fp32", "bf16"}},
	}}
}

// today is the morning after lastNight, with nothing changed.
func today() FitsToday {
	return FitsToday{Conditions: here, Job: job(), Room: 79 * gib, Policy: strategy.Policy{Mode: strategy.Ladder, Numerics: strategy.MixedPrecision},
		Inventory: strategy.Inventory{BF16: true, At: lastNight.Add(24 * time.Hour)}}
}

// model is what a rank measured; its peak is in GiB.
func model(parameters int64, peak int64) []memory.Measurement {
	return []memory.Measurement{{Model: &memory.TrainedModel{Class: "GPT", Parameters: parameters}, Peak: peak * gib, Outside: gib, Total: 80 * gib, StepSeconds: 0.5}}
}

// night runs the job as written, which runs out of memory, and then a plan that trains.
func night(fits []Fit, key Conditions, j strategy.Job, plan strategy.Plan) []Fit {
	failed := strategy.Attempt{Plan: j.Written, Ended: lastNight, Diagnosis: strategy.Diagnosis{Cause: cause.CUDAOOM, Fatal: true}, Measured: model(1000, 78)}
	fits = LearnFits(fits, Observation{Conditions: key, Job: j, Attempt: failed, Training: strategy.Exact, Room: 79 * gib})
	trained := strategy.Attempt{Plan: plan, Ended: lastNight, Measured: model(1000, 70)}
	class, _ := j.Training(plan, nil)
	return LearnFits(fits, Observation{Conditions: key, Job: j, Attempt: trained, Training: class, Trained: true, Room: 79 * gib})
}

// TestRememberedPlanNeedsEqualConditions has one row for each thing that may be different from last night.
func TestRememberedPlanNeedsEqualConditions(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(*FitsToday)
		// plan is what is started with, nil for the job as written; unused is a part of why.
		plan     strategy.Plan
		unused   string
		measured bool // there are measurements
	}{
		{"nothing", func(*FitsToday) {}, smaller, "", true},
		{"the code", func(d *FitsToday) { d.Code = "new" }, nil, "code, arguments or configuration", false},
		{"the card", func(d *FitsToday) { d.Device, d.DeviceBytes = "NVIDIA A100", 40*gib }, nil, "another device: NVIDIA H100", false},
		{"the card's memory", func(d *FitsToday) { d.DeviceBytes = 94 * gib }, nil, "another device", false},
		{"PyTorch", func(d *FitsToday) { d.Torch = "2.12" }, nil, "another PyTorch", false},
		{"the ranks", func(d *FitsToday) { d.Conditions.DataParallel = 4 }, nil, "2 data-parallel ranks", false},
		{"the recipe", func(d *FitsToday) { d.Recipe = "accelerate" }, nil, "another recipe", false},
		{"the code and the card", func(d *FitsToday) { d.Code, d.Device = "new", "NVIDIA A100" }, nil, "another device", false},
		{"the global batch", func(d *FitsToday) { d.Job.Written = asIs.With(strategy.Plan{strategy.MicroBatchSize: "32"}) }, nil, "micro batch 16→32", true},
		{"never", func(d *FitsToday) { d.Policy.Never = []string{"checkpointing"} }, nil, `recovery.never lists "checkpointing"`, true},
		{"never a knob", func(d *FitsToday) { d.Policy.Never = []string{"micro_batch_size"} }, nil, `recovery.never lists "micro_batch_size"`, true},
		{"never another", func(d *FitsToday) { d.Policy.Never = []string{"precision"} }, smaller, "", true},
		{"mode", func(d *FitsToday) { d.Policy.Mode = strategy.Off }, nil, `"off"`, true},
		{"the job's switch", func(d *FitsToday) {
			d.Job.Knobs[strategy.ActivationCheckpointing] = strategy.Range{Absent: "launch.hooks = false"}
		}, nil, "launch.hooks = false", true},
		{"the least batch", func(d *FitsToday) { d.Job.Knobs[strategy.MicroBatchSize] = strategy.Range{Min: 16} }, nil, "cannot set the micro batch to 8", true},
		{"less room, and the peak fits", func(d *FitsToday) { d.Room = 75 * gib }, smaller, "", true},
		{"less room than the peak", func(d *FitsToday) { d.Room = 71 * gib }, nil, "it had 79.0 GiB, and there are 71.0 GiB", true},
		{"more room: the failure says nothing", func(d *FitsToday) { d.Room = 85 * gib }, nil, "", true},
		{"room that nobody knows", func(d *FitsToday) { d.Room = 0 }, smaller, "", true},
	} {
		now := today()
		c.change(&now)
		got := JudgeFits(night(nil, here, job(), smaller), now)
		var plan strategy.Plan
		if got.Recalled != nil {
			plan = got.Recalled.Plan
		}
		if !equal(plan, c.plan) {
			t.Errorf("%s: starts with %v, want %v (%s)", c.name, plan, c.plan, got.Unused)
		}
		if !strings.Contains(got.Unused, c.unused) || (got.Unused == "") != (c.unused == "") {
			t.Errorf("%s: unused since %q, want %q", c.name, got.Unused, c.unused)
		}
		if len(got.Measured) > 0 != c.measured {
			t.Errorf("%s: %d measurements", c.name, len(got.Measured))
		}
	}
}

func TestNumericsNeedConsentOrTwoRuns(t *testing.T) {
	once := night(nil, here, job(), inBF16)
	twice := night(once, here, job(), inBF16)
	again := job()
	again.Recalled = &strategy.Recalled{Plan: inBF16}
	// A run that started with the plan did not come to it by itself.
	repeated := LearnFits(once, Observation{Conditions: here, Job: again, Trained: true, Room: 79 * gib, Attempt: strategy.Attempt{Plan: inBF16, Ended: lastNight}})
	for _, c := range []struct {
		name   string
		fits   []Fit
		change func(*FitsToday)
		used   bool
	}{
		{"once", once, func(*FitsToday) {}, false},
		{"once, and recalled", repeated, func(*FitsToday) {}, false},
		{"once, allowed explicitly", once, func(d *FitsToday) { d.Policy.NumericsSaid = true }, true},
		{"twice", twice, func(*FitsToday) {}, true},
		{"twice, preserve", twice, func(d *FitsToday) { d.Policy.Numerics = strategy.Preserve }, false},
		{"twice, no bf16 here", twice, func(d *FitsToday) { d.Inventory.BF16 = false }, false},
	} {
		now := today()
		c.change(&now)
		if got := JudgeFits(c.fits, now); (got.Recalled != nil) != c.used || c.used == (got.Unused != "") {
			t.Errorf("%s: %v, unused %q", c.name, got.Recalled, got.Unused)
		}
	}
}

func TestJobAsWrittenReturnsAfterItFitted(t *testing.T) {
	// It fitted when a user requested it.
	fits := LearnFits(night(nil, here, job(), smaller), Observation{Conditions: here, Job: job(), Training: strategy.Exact, Trained: true, Room: 79 * gib, Attempt: strategy.Attempt{Plan: asIs, Ended: lastNight}})
	if got := JudgeFits(fits, today()); got.Recalled != nil {
		t.Errorf("the job as written fitted last, and %v is started", got.Recalled)
	}
	// Another model was seen under the same key.
	other := LearnFits(night(nil, here, job(), smaller), Observation{Conditions: here, Job: job(), Training: strategy.Exact, Trained: true, Room: 79 * gib,
		Attempt: strategy.Attempt{Plan: smaller, Ended: lastNight, Measured: model(500, 20)}})
	got := JudgeFits(other, today())
	if got.Recalled != nil || len(got.Measured) != 1 || got.Measured[0].Model.Parameters != 500 {
		t.Errorf("after another model: %+v", got)
	}
}

func TestPlanThatNoLongerFitsIsNotStarted(t *testing.T) {
	out := Observation{Conditions: here, Job: job(), Room: 79 * gib, Attempt: strategy.Attempt{Plan: smaller, Ended: lastNight, Diagnosis: strategy.Diagnosis{Cause: cause.CUDAOOM, Fatal: true}}}
	fits := LearnFits(night(nil, here, job(), smaller), out)
	if got := JudgeFits(fits, today()); got.Recalled != nil {
		t.Errorf("%v", got.Recalled)
	}
	if fits := UnlearnFits(night(nil, here, job(), smaller), here, smaller); JudgeFits(fits, today()).Recalled != nil {
		t.Error("a forgotten plan is started")
	}
}

func TestUninformativeAttemptsAreNotLearned(t *testing.T) {
	for name, a := range map[string]strategy.Attempt{
		"a bug of the job":  {Plan: asIs, Diagnosis: strategy.Diagnosis{Cause: cause.UserError, Fatal: true}},
		"never started":     {Plan: asIs, Unstarted: &strategy.Unstarted{}, Diagnosis: strategy.Diagnosis{Cause: cause.CUDAOOM, Fatal: true}},
		"halted":            {Plan: asIs, Halted: true, Diagnosis: strategy.Diagnosis{Cause: cause.CUDAOOM, Fatal: true}},
		"a leak":            {Plan: asIs, Diagnosis: strategy.Diagnosis{Cause: cause.CUDAOOM, Fatal: true, Growth: &cause.Growth{}}},
		"another plan used": {Plan: smaller, Observed: strategy.Plan{strategy.MicroBatchSize: "4"}, Diagnosis: strategy.Diagnosis{Cause: cause.CUDAOOM, Fatal: true}},
		"another's memory":  {Plan: asIs, Diagnosis: strategy.Diagnosis{Cause: cause.GPUOccupied, Fatal: true}},
	} {
		if fits := LearnFits(nil, Observation{Conditions: here, Job: job(), Attempt: a}); len(fits) != 0 {
			t.Errorf("%s: %+v", name, fits)
		}
	}
	out := strategy.Attempt{Diagnosis: strategy.Diagnosis{Cause: cause.CUDAOOM, Fatal: true}}
	if fits := LearnFits(nil, Observation{Conditions: here, Job: strategy.Job{Knobs: map[strategy.Knob]strategy.Range{strategy.Precision: {Absent: "no switch"}}}, Attempt: out}); len(fits) != 0 {
		t.Errorf("a job that nobody can change: %+v", fits)
	}
	// One with nothing set, in whose process something can be turned, is remembered.
	inside := strategy.Job{Knobs: map[strategy.Knob]strategy.Range{strategy.ActivationCheckpointing: {By: strategy.ByHook, Values: []strategy.Value{"none", "full"}}}}
	fits := LearnFits(nil, Observation{Conditions: here, Job: inside, Attempt: out})
	turned := strategy.Plan{strategy.ActivationCheckpointing: "full"}
	fits = LearnFits(fits, Observation{Conditions: here, Job: inside, Trained: true, Attempt: strategy.Attempt{Plan: turned, Ended: lastNight, Observed: turned}})
	now := today()
	now.Job = inside
	if got := JudgeFits(fits, now); got.Recalled == nil || !equal(got.Recalled.Plan, turned) {
		t.Errorf("what was turned inside: %+v, %s", got.Recalled, got.Unused)
	}
}

func TestFitsAreBounded(t *testing.T) {
	var fits []Fit
	j := job()
	for code := range 2 * mostFits {
		key := here
		key.Code = strings.Repeat("x", code)
		fits = night(fits, key, j, smaller)
	}
	for n := range 3 * mostTried {
		plan := asIs.With(strategy.Plan{strategy.MicroBatchSize: strategy.Number(n + 100)})
		fits = LearnFits(fits, Observation{Conditions: here, Job: j, Training: strategy.Exact, Trained: true, Attempt: strategy.Attempt{Plan: plan, Ended: lastNight, Measured: append(model(1000, 1), append(model(1000, 2), model(1000, 3)...)...)}})
		if n == 0 {
			fits = night(fits, here, j, smaller)
		}
	}
	if len(fits) != mostFits || len(fits[0].Tried) != mostTried || fits[0].plan(asIs) < 0 || len(fits[0].Tried[0].Measured) != mostMeasured {
		t.Errorf("%d fits, %d plans, that as written %d, %d measurements", len(fits), len(fits[0].Tried), fits[0].plan(asIs), len(fits[0].Tried[0].Measured))
	}
	text, err := encode(fits)
	testenv.Check(t, err)
	back, err := decode(text)
	if err != nil || len(back) != len(fits) {
		t.Errorf("read back: %d, %v", len(back), err)
	}
	huge := model(1000, 1)
	huge[0].Marks = []memory.Marks{{Path: strings.Repeat("h", largestFits/2)}}
	fits = LearnFits(fits, Observation{Conditions: here, Job: j, Training: strategy.Exact, Trained: true, Attempt: strategy.Attempt{Plan: smaller, Ended: lastNight, Measured: huge}})
	fits = LearnFits(fits, Observation{Conditions: Conditions{Code: "y"}, Job: j, Training: strategy.Exact, Trained: true, Attempt: strategy.Attempt{Plan: smaller, Ended: lastNight, Measured: huge}})
	if text, err = encode(fits); err != nil || len(text) > largestFits {
		t.Errorf("%d bytes, %v", len(text), err)
	}
	if back, err = decode(text); err != nil || back[0].Code != "y" {
		t.Errorf("of what is too large, the newest is kept: %v, %v", len(back), err)
	}
}

// A plan that is equal on average is not started with while one that trains the same has
// fitted, or is predicted to fit.
func TestExactPlansAreRecalledFirst(t *testing.T) {
	full := asIs.With(strategy.Plan{strategy.ActivationCheckpointing: "full"})
	halved := asIs.With(strategy.Plan{strategy.MicroBatchSize: "8", strategy.GradientAccumulationSteps: "2"})
	both := func(class strategy.Training) []Fit {
		fits := night(night(nil, here, job(), full), here, job(), halved)
		for i := range fits[0].Tried {
			if t := &fits[0].Tried[i]; equal(t.Plan, halved) {
				t.Training = class
			}
		}
		return fits
	}
	predict := func(p *strategy.Policy) { p.Mode = strategy.Predict }
	for name, test := range map[string]struct {
		fits   []Fit
		policy func(*strategy.Policy)
		want   strategy.Plan
		class  strategy.Training
	}{
		"an exact one is older": {both(strategy.Average), predict, full, strategy.Exact},
		"the newest was proven": {both(strategy.Exact), predict, halved, strategy.Exact},
		"speed is preferred":    {both(strategy.Average), func(p *strategy.Policy) { p.Mode, p.Prefer = strategy.Predict, strategy.Speed }, halved, strategy.Average},
		"the ladder":            {both(strategy.Average), func(*strategy.Policy) {}, halved, strategy.Average},
		"nothing else fitted":   {night(nil, here, job(), halved), predict, halved, strategy.Average},
	} {
		d := today()
		test.policy(&d.Policy)
		r := JudgeFits(test.fits, d).Recalled
		if r == nil || !equal(r.Plan, test.want) || r.Training != test.class {
			t.Errorf("%s: %+v, want %s, %s", name, r, test.want, test.class)
		}
	}
}

func TestClassIsKeptWithThePlan(t *testing.T) {
	trained := strategy.Attempt{Plan: smaller, Ended: lastNight, Measured: model(1000, 70)}
	fits := LearnFits(nil, Observation{Conditions: here, Job: job(), Attempt: trained, Training: strategy.Average, Trained: true})
	if got := fits[0].Tried[0].Training; got != strategy.Average {
		t.Errorf("the plan is kept as %q", got)
	}
}

// A plan that ran with remedies in place begins with them, in the sizes of all ranks, unless there is more memory or
// they are not allowed. A faster plan that trains the same is preferred, one that is equal on average is not.
func TestRemediesInPlaceAreRemembered(t *testing.T) {
	needed := []strategy.ArmedRemedy{{Remedy: strategy.RemedyCheckpointing, Elements: 4096, Longest: 512}}
	ran := func(plan strategy.Plan, class strategy.Training, seconds float64, end func(*strategy.Attempt), armed []strategy.ArmedRemedy) Observation {
		a := strategy.Attempt{Plan: plan, Ended: lastNight, Measured: model(1000, 70)}
		a.Measured[0].StepSeconds = seconds
		end(&a)
		return Observation{Conditions: here, Job: job(), Attempt: a, Training: class, Trained: a.Speedup == nil && !a.Diagnosis.Fatal, Room: 79 * gib, InPlace: armed}
	}
	well := func(*strategy.Attempt) {}
	spedUp := func(a *strategy.Attempt) { a.Speedup = &strategy.Decision{Relaunch: true} }
	failed := func(a *strategy.Attempt) { a.Diagnosis = strategy.Diagnosis{Cause: cause.CUDAOOM, Fatal: true} }
	full := asIs.With(strategy.Plan{strategy.ActivationCheckpointing: "full"})
	for name, test := range map[string]struct {
		seen   []Observation
		change func(*FitsToday)
		plan   strategy.Plan // recalled; nil: as written
		armed  []strategy.ArmedRemedy
	}{
		"trained":                   {[]Observation{ran(asIs, strategy.Exact, 1, well, needed)}, nil, nil, needed},
		"more memory":               {[]Observation{ran(asIs, strategy.Exact, 1, well, needed)}, func(d *FitsToday) { d.Room = 90 * gib }, nil, nil},
		"less memory":               {[]Observation{ran(asIs, strategy.Exact, 1, well, needed)}, func(d *FitsToday) { d.Room = 60 * gib }, nil, needed},
		"other code":                {[]Observation{ran(asIs, strategy.Exact, 1, well, needed)}, func(d *FitsToday) { d.Code = "new" }, nil, nil},
		"a faster plan":             {[]Observation{ran(asIs, strategy.Exact, 1, spedUp, needed), ran(full, strategy.Exact, .8, well, nil)}, nil, full, nil},
		"a plan that is as fast":    {[]Observation{ran(asIs, strategy.Exact, 1, spedUp, needed), ran(full, strategy.Exact, .95, well, nil)}, nil, nil, needed},
		"a faster average plan":     {[]Observation{ran(asIs, strategy.Exact, 1, spedUp, needed), ran(smaller, strategy.Average, .5, well, nil)}, nil, nil, needed},
		"before it, an average one": {[]Observation{ran(asIs, strategy.Exact, 0, failed, nil), ran(smaller, strategy.Average, .5, well, nil), ran(asIs, strategy.Exact, 1, well, needed)}, nil, nil, needed},
		"not allowed any more":      {[]Observation{ran(full, strategy.Exact, 1, well, nil), ran(asIs, strategy.Exact, 1, well, needed)}, func(d *FitsToday) { d.Policy.InPlace = false }, full, nil},
	} {
		var fits []Fit
		for _, o := range test.seen {
			fits = LearnFits(fits, o)
		}
		text, err := encode(fits)
		if err == nil {
			fits, err = decode(text)
		}
		testenv.Check(t, err)
		now := today()
		now.Policy.InPlace = true
		if test.change != nil {
			test.change(&now)
		}
		r := JudgeFits(fits, now)
		if r.Recalled == nil != (test.plan == nil) || r.Recalled != nil && !equal(r.Recalled.Plan, test.plan) {
			t.Errorf("%s: recalled %+v, want %v", name, r.Recalled, test.plan)
		}
		if r.Armed == nil != (test.armed == nil) || r.Armed != nil && (r.Armed.Remedies[0] != test.armed[0] || !equal(r.Armed.Plan, asIs)) {
			t.Errorf("%s: armed %+v, want %+v", name, r.Armed, test.armed)
		}
	}
}

// remembered is a job of files, with its own configuration file and module.
var remembered = map[string]string{
	"train.py":       trainer + "import model\n",
	"model.py":       "from parts import block\n",
	"parts/block.py": "WIDTH = 64\n",
	"ds.json":        `{"zero_optimization": {"stage": 1}, "train_micro_batch_size_per_gpu": 8, "gradient_accumulation_steps": 1, "bf16": {"enabled": false}}`,
}

// codeOf is the digest of the job's code, with some files and words instead.
func codeOf(t *testing.T, change map[string]string, words ...string) string {
	t.Helper()
	files := map[string]string{}
	for name, text := range remembered {
		files[name] = text
	}
	for name, text := range change {
		files[name] = text
	}
	dir, _ := folder(t, files)
	p, err := prepared(t, dir, machine(dir), slices.Concat([]string{"train.py", "--output_dir", "out", "--deepspeed", "ds.json"}, words)...)
	testenv.Check(t, err)
	if p.RecipeName() != "hf-trainer" {
		t.Fatalf("recipe %s", p.RecipeName())
	}
	return p.codeDigest()
}

// TestTheDigestOfTheCode: what the job needs depends on it, but for the settings that
// gpurun may change.
func TestTheDigestOfTheCode(t *testing.T) {
	base := []string{"--per_device_train_batch_size", "8", "--gradient_accumulation_steps", "1"}
	was := codeOf(t, nil, base...)
	halved := strings.NewReplacer(`gpu": 8`, `gpu": 4`, `steps": 1`, `steps": 2`).Replace(remembered["ds.json"])
	for name, c := range map[string]struct {
		change map[string]string
		words  []string
		same   bool
	}{
		"nothing":                   {nil, base, true},
		"a smaller batch":           {map[string]string{"ds.json": halved}, []string{"--per_device_train_batch_size", "4", "--gradient_accumulation_steps", "2"}, true},
		"another argument":          {nil, append(slices.Clone(base), "--hidden", "128"), false},
		"the script":                {map[string]string{"train.py": remembered["train.py"] + "LAYERS = 7\n"}, base, false},
		"a module":                  {map[string]string{"model.py": remembered["model.py"] + "LAYERS = 7\n"}, base, false},
		"a module's module":         {map[string]string{"parts/block.py": "WIDTH = 128\n"}, base, false},
		"a file that nobody reads":  {map[string]string{"notes.txt": "LAYERS = 7\n"}, base, true},
		"the file, beside settings": {map[string]string{"ds.json": strings.Replace(remembered["ds.json"], "{", `{"steps_per_print": 5, `, 1)}, base, false},
	} {
		if same := codeOf(t, c.change, c.words...) == was; same != c.same {
			t.Errorf("%s: the same %v, want %v", name, same, c.same)
		}
	}
}

// A seed, a learning rate, the name of a run and a place for output change no shape, count or dtype. Other words do,
// and so may these if they have an unusual value.
func TestNeutralArgumentsMakeNoOtherJob(t *testing.T) {
	for _, test := range []struct {
		a, b string
		same bool
	}{
		{"t.py --seed 1", "t.py --seed 2", true},
		{"t.py --seed=1 --x", "t.py --seed=-2 --x", true},
		{"t.py --learning-rate 1e-3", "t.py --learning-rate 5e-5", true},
		{"t.py train.seed=1 optim.lr=0.1", "t.py train.seed=2 optim.lr=0.2", true},
		{"t.py ++run_name=a", "t.py ++run_name=b", true},
		{"t.py --output_dir out/1 --bs 8", "t.py --output_dir out/2 --bs 8", true},
		{"t.py --run-name a --wandb_project=p", "t.py --run-name b --wandb_project=q", true},
		{"t.py --bs 8", "t.py --bs 4", false},
		{"t.py --seed 1", "t.py --seed large.yaml", false},
		{"t.py --seed 1 --bs 8", "t.py --seed --bs 8", false},
		{"t.py --run_name --hidden 4", "t.py --run_name --hidden 8", false},
		{"t.py --model_name a", "t.py --model_name b", false},
		{"t.py experiment=small", "t.py experiment=large", false},
		{"t.py --seed 1", "t.py --random-seed 1", false},
		{"seed 1", "seed 2", false},
		{"t.py seed 1", "t.py seed 2", false},
		{"seed=1 t.py", "seed=2 t.py", false},
		{"t.py --epochs 1", "t.py --epochs 2", false},
	} {
		a, b := withoutNeutral(strings.Fields(test.a)), withoutNeutral(strings.Fields(test.b))
		if slices.Equal(a, b) != test.same {
			t.Errorf("%s and %s: %q, %q", test.a, test.b, a, b)
		}
	}
}

func TestDigestHasScriptsOfAShell(t *testing.T) {
	digest := func(script string) string {
		dir, _ := folder(t, map[string]string{"train.sh": script})
		p, err := prepared(t, dir, machine(dir), "--no-python", "sh", "train.sh", "--layers", "6")
		testenv.Check(t, err)
		return p.codeDigest()
	}
	if a, b, c := digest("echo 1"), digest("echo 1"), digest("echo 2"); a != b || a == c {
		t.Errorf("%s, %s, %s", a, b, c)
	}
}

// nowhere gives variables that name no folder.
func nowhere(string) string { return "" }

// Where only the folder that users share cannot be written, the message names it: the user's own memory has the plan.
func TestErrorOfSharingNamesTheSharedFolder(t *testing.T) {
	dir, _ := folder(t, remembered)
	p, err := prepared(t, dir, machine(dir), "train.py", "--output_dir", "out", "--per_device_train_batch_size", "8")
	testenv.Check(t, err)
	p.Job.Fits.Shared = filepath.Join(dir, "missing")
	state := t.TempDir()
	variables := func(name string) string { return map[string]string{"XDG_STATE_HOME": state}[name] }
	j, inv := p.StrategyJob(), strategy.Inventory{At: time.Now(), Device: p.Device(nil)}
	failed := strategy.Attempt{Plan: j.Written, Ended: inv.At, Diagnosis: strategy.Diagnosis{Cause: cause.HostOOM, Fatal: true}}
	trained := strategy.Attempt{N: 1, Plan: j.Written.With(strategy.Plan{strategy.MicroBatchSize: "4", strategy.GradientAccumulationSteps: "2"}), Ended: inv.At}
	m := p.Memory(variables, false)
	err = m.Keep(t.Context(), j, []strategy.Attempt{failed, trained}, strategy.Decision{Outcome: strategy.Trained}, inv)
	want := "cannot share the plans of this job: stat " + p.Job.Fits.Shared + ": no such file or directory"
	if err == nil || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
	if own, err := m.store.Load(); len(own) != 1 || err != nil {
		t.Errorf("the user's own memory: %v, %v", own, err)
	}
}

// TestAJobIsRemembered goes through two nights, with all that may be in between.
func TestAJobIsRemembered(t *testing.T) {
	dir, _ := folder(t, remembered)
	// What PyTorch says of itself, beside an interpreter that finds it there.
	put(t, filepath.Join(dir, "site", "torch", "version.py"), "__all__ = ['__version__']\n__version__ = '2.11.0+cu130'\n")
	put(t, filepath.Join(dir, "python3"), parses+"echo '{\"version\": \"3.12.0\", \"path\": [\""+dir+"/site\"], \"packages\": {\"transformers\": \"4.57.0\"}}'\n")
	p, err := prepared(t, dir, machine(dir), "train.py", "--output_dir", "out", "--per_device_train_batch_size", "8")
	testenv.Check(t, err)
	if got := p.torchMinor(t.Context()); got != "2.11" {
		t.Errorf("torch %q", got)
	}
	state := t.TempDir()
	variables := func(name string) string { return map[string]string{"XDG_STATE_HOME": state}[name] }
	j, inv := p.StrategyJob(), strategy.Inventory{At: time.Now(), Device: p.Device(nil)}
	policy := strategy.Policy{Mode: strategy.Ladder, Numerics: strategy.MixedPrecision}
	smaller := j.Written.With(strategy.Plan{strategy.MicroBatchSize: "4", strategy.GradientAccumulationSteps: "2"})

	first := p.Memory(variables, false)
	none := func() strategy.Inventory {
		t.Error("the inventory was asked for, and nothing is remembered")
		return inv
	}
	if with, words := first.Recall(t.Context(), policy, j, none); with.Recalled != nil || len(words) != 0 {
		t.Errorf("the first night: %+v, %v", with.Recalled, words)
	}
	if err := first.Keep(t.Context(), j, []strategy.Attempt{{Plan: j.Written, Ended: inv.At}}, strategy.Decision{Outcome: strategy.Trained}, inv); err != nil {
		t.Fatal(err)
	}
	if made, _ := os.ReadDir(state); len(made) > 0 {
		t.Errorf("of a job that trained as written, %v was made", made)
	}
	failed := strategy.Attempt{Plan: j.Written, Ended: inv.At, Diagnosis: strategy.Diagnosis{Cause: cause.HostOOM, Fatal: true}}
	trained := strategy.Attempt{N: 1, Plan: smaller, Ended: inv.At, Measured: []memory.Measurement{{Peak: 5, Model: &memory.TrainedModel{Class: "GPT", Parameters: 9}}}}
	err = errors.Join(first.Keep(t.Context(), j, []strategy.Attempt{failed}, strategy.Decision{Relaunch: true}, inv),
		first.Keep(t.Context(), j, []strategy.Attempt{failed, trained}, strategy.Decision{Outcome: strategy.Trained}, inv))
	testenv.Check(t, err)
	// People are told that the plan is remembered, and only of that plan.
	for at, want := range map[*strategy.Plan]bool{&smaller: true, &j.Written: false} {
		if words, err := p.Propose(*at, nil, dir, 1, variables); err != nil || words.Remembered != want {
			t.Errorf("%s is said to be remembered: %v, %v", *at, words.Remembered, err)
		}
	}
	if words, _ := p.Propose(smaller, nil, dir, 1, nowhere); words.Remembered {
		t.Error("nothing is remembered nowhere")
	}

	now := func() strategy.Inventory { return inv }
	with, words := p.Memory(variables, false).Recall(t.Context(), policy, j, now)
	if with.Recalled == nil || with.Recalled.Plan[strategy.MicroBatchSize] != "4" || with.Recalled.Fit == "" || len(with.Remembered) != 1 || len(words) != 0 {
		t.Fatalf("the second night: %+v, %v", with, words)
	}
	if with, _ := p.Memory(variables, true).Recall(t.Context(), policy, j, now); with.Recalled != nil || len(with.Remembered) != 0 {
		t.Errorf("fresh: %+v", with)
	}
	if with, words := p.Memory(func(string) string { return "" }, false).Recall(t.Context(), policy, j, now); with.Recalled != nil || len(words) != 1 {
		t.Errorf("nowhere: %+v, %v", with.Recalled, words)
	}
	// The plan failed, and the job as written trained: it was the plan.
	bug := strategy.Attempt{Plan: smaller, Ended: inv.At, Diagnosis: strategy.Diagnosis{Cause: cause.UserError, Fatal: true, Error: "ValueError: 4"}}
	again := strategy.Attempt{N: 1, Plan: j.Written, Ended: inv.At, Diagnosis: failed.Diagnosis}
	if err := p.Memory(variables, false).Keep(t.Context(), with, []strategy.Attempt{bug, again}, strategy.Decision{Relaunch: true}, inv); err != nil {
		t.Fatal(err)
	}
	if with, _ := p.Memory(variables, false).Recall(t.Context(), policy, j, now); with.Recalled != nil {
		t.Errorf("a plan that fails by itself is started again: %+v", with.Recalled)
	}
	// It trained once more, and then failed so late that nothing else had a turn.
	if err := p.Memory(variables, false).Keep(t.Context(), j, []strategy.Attempt{failed, trained}, strategy.Decision{Outcome: strategy.Trained}, inv); err != nil {
		t.Fatal(err)
	}
	if with, _ = p.Memory(variables, false).Recall(t.Context(), policy, j, now); with.Recalled == nil {
		t.Fatal("what trained again is not started with")
	}
	if err := p.Memory(variables, false).Keep(t.Context(), with, []strategy.Attempt{bug}, strategy.Decision{Outcome: strategy.Failed}, inv); err != nil {
		t.Fatal(err)
	}
	if with, _ := p.Memory(variables, false).Recall(t.Context(), policy, j, now); with.Recalled != nil {
		t.Errorf("it is started with every night, and fails: %+v", with.Recalled)
	}
}

// Of a job that gets words for its run, those do not count.
func TestWordsOfTheRunAreNotRemembered(t *testing.T) {
	p := &Prepared{Resolved: Resolved{Inspected: Inspected{Job: Job{Workdir: "/job", Argv: []string{"train.py"}, Kind: Script}}}}
	pinned := *p
	pinned.Job.Argv, pinned.unpinned = []string{"train.py", "--experiment", "20251121-030000-ab12"}, p
	none := func(string) string { return "" }
	if m := pinned.Memory(none, false); m.job != p {
		t.Error("the words of the run count")
	}
}

func TestTheDeviceWithTheLeastRoom(t *testing.T) {
	dir, _ := folder(t, map[string]string{"train.py": trainer})
	p, err := prepared(t, dir, machine(dir), "train.py", "--output_dir", "out")
	testenv.Check(t, err)
	d := p.Device([]ranks.Device{{Name: "a", Total: 80, Used: 1}, {Name: "b", Total: 80, Used: 30}, {Name: "c", Total: 94}})
	if d.Name != "b" || d.Total != 80 || d.Others != 30 {
		t.Errorf("%+v", d)
	}
	if d := p.Device(nil); d.Name != "cpu" || !d.CPU || d.Total != 0 {
		t.Errorf("%+v", d)
	}
	if _, err := os.Stat(filepath.Join(dir, ".gpurun")); err == nil {
		t.Error("a folder was made")
	}
}
