package memory

import (
	"math"
	"testing"
)

// launchesFile has measured plans with small micro batches of five models on an H100 with a slow host, and the host's
// times for their launches.
const launchesFile = "testdata/h100-launches.jsonl"

// timeErrors are the errors of predicted step times as factors, over all plans that could follow a first one that ran out
// of memory in its forward.
func timeErrors(t *testing.T, launched bool) (off []float64) {
	for _, l := range readLandscape(t, launchesFile) {
		for first, r := range l.rows {
			if first.Accum != 1 || first.Ckpt != "none" || first.Micro < 8 {
				continue
			}
			try := trial{l: l, first: first, cap: int(r.Peak / 2)}
			m, _ := l.seen(first, 1, try.cap)
			if !launched {
				m.Launch = Launch{}
			}
			f := NewPredictor(TrainedModel{}, DeviceMemory{Name: "NVIDIA H100", Total: 80 << 30, Allowed: int64(try.cap)}, []Measurement{m})
			for _, o := range try.options() {
				// A row has one or two micro batches in a step.
				if p := f.Predict(o.s.plan(o.r.Accum)); p.Seconds > 0 {
					off = append(off, math.Exp(math.Abs(math.Log(p.Seconds/o.r.StepS))))
				}
			}
		}
	}
	return off
}

// TestTimesOfSmallBatches: the launches that attempt 0 measured give the times of plans on a slow host. The rows
// themselves vary by a fifth.
func TestTimesOfSmallBatches(t *testing.T) {
	off, without := timeErrors(t, true), timeErrors(t, false)
	median, most := quantile(off, .5), quantile(off, .9)
	t.Logf("%d plans: median %.2f, p90 %.2f; without launches %.2f, %.2f", len(off), median, most, quantile(without, .5), quantile(without, .9))
	if len(off) < 300 || median > 1.27 || most > 1.7 || most > .85*quantile(without, .9) {
		t.Error("step times are further off than they were")
	}
}

// TestSmallBatchesReport replays the same rows with processes that correct a plan that needs more than expected.
func TestSmallBatchesReport(t *testing.T) {
	var all []result
	for _, l := range readLandscape(t, launchesFile) {
		for _, c := range trials(l) {
			c.margin = .02
			exact := c.play(true)
			played := c.play(false)
			played.exact = &exact
			all = append(all, played)
		}
	}
	r := summary(all)
	t.Log(line(r))
	if r.Cases < 250 || r.AttemptsLE2 < .97 || r.RatioMean < .95 || r.Under5 > .01 {
		t.Error("below what the planner must reach")
	}
}

// TestLaunchesBoundSmallBatches: where launches take long, few large micro batches that are recomputed take less time than
// many small ones.
func TestLaunchesBoundSmallBatches(t *testing.T) {
	small, large := with(0, 2, batch(1)), with(0, 1, func(p *RankPlan) { p.Checkpointing = "full" })
	seconds := func(ranks ...Launch) (small1, large1 float64) {
		var all []Measurement
		for _, l := range ranks {
			m := measuredJob(40 * gibi)
			m.Launch = l
			all = append(all, m)
		}
		f := NewPredictor(TrainedModel{}, DeviceMemory{Name: "H200", Total: 141 * gibi, Allowed: 40 * gibi}, all)
		return f.Predict(small.Plan).Seconds, f.Predict(large.Plan).Seconds
	}
	const forward, backward = .6, 1.2
	a, b := seconds(Launch{Forward: forward, Backward: backward})
	if a < 8*(forward+backward) || a > 10*(forward+backward) || b < launchCheckpointing*(forward+backward) || b > a/3 {
		t.Errorf("8 small micro batches take %g s, one that is recomputed %g s", a, b)
	}
	if slow, _ := seconds(Launch{Forward: 2 * forward, Backward: 2 * backward}, Launch{Forward: forward, Backward: backward}); slow < 1.8*a {
		t.Errorf("with a rank whose launches take twice as long they take %g s, else %g", slow, a)
	}
	cold, _ := seconds(Launch{Forward: forward / launchCold, AtMost: true})
	if want := 8 * forward * (1 + launchBackward); cold < want || cold > 1.3*want {
		t.Errorf("with the launches of a cold call they take %g s, not %g", cold, want)
	}
	if none, _ := seconds(Launch{}); none > 8*forward {
		t.Errorf("without measured launches they take %g s", none)
	}
}

// TestMeasuredStepsFitTheDevice: if launches and steps were measured, what the launches leave of a step is the device's
// time, and a step that took less than the launches corrects these.
func TestMeasuredStepsFitTheDevice(t *testing.T) {
	const launch = 6.
	for _, step := range []float64{4, 10, 30} {
		m := measuredJob(0)
		m.Failed, m.Steps, m.StepSeconds, m.Launch = "", 5, step, Launch{Forward: launch / 3, Backward: launch / 3 * 2}
		f := NewPredictor(TrainedModel{}, DeviceMemory{Name: "H200"}, []Measurement{m})
		one := with(0, 0, batch(1)).Plan
		same, small := f.Predict(m.Plan).Seconds, f.Predict(one).Seconds
		if math.Abs(same/step-1) > .02 {
			t.Errorf("a measured step of %g s is predicted to take %g s", step, same)
		}
		if small < 8*min(step, launch)*.9 || small > max(10*min(step, launch), 2*step) {
			t.Errorf("8 micro batches take %g s, where one large takes %g s", small, step)
		}
	}
}

// TestLaunchesBeforeARemedy: a plan that ran out of memory keeps its own launches, not those of the remedy in place.
func TestLaunchesBeforeARemedy(t *testing.T) {
	own := Launch{Forward: 1, AtMost: true}
	m := Measurement{Launch: Launch{Forward: 2, Backward: 3}, RanOut: &RanOut{Failed: "forward", Launch: own}}
	if failed, ok := m.WithoutRemedies(); !ok || failed.Launch != own {
		t.Errorf("%+v, want %+v", failed.Launch, own)
	}
}
