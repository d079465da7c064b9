package memory

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"slices"
	"testing"
)

// A report is the last line of make landscape-report.
type report struct {
	Cases          int     `json:"cases"`
	AttemptsLE2    float64 `json:"attempts_le2"`
	AttemptsMean   float64 `json:"attempts_mean"`
	RatioMedian    float64 `json:"ratio_median"`
	RatioMean      float64 `json:"ratio_mean"`
	RatioP10       float64 `json:"ratio_p10"`
	LadderAttempts float64 `json:"ladder_attempts_mean"`
	LadderRatio    float64 `json:"ladder_ratio_mean"`
	ErrorMedian    float64 `json:"peak_error_median"`
	Under5         float64 `json:"under_5_percent"`
	// ExactRatio is the mean ratio if a plan with the written micro batch comes first.
	ExactRatio    float64 `json:"exact_ratio_mean"`
	ExactAttempts float64 `json:"exact_attempts_mean"`
}

// A trial is a first plan and a cap at which it fails, while some row fits.
type trial struct {
	l      *landscape
	first  setting
	cap    int
	margin float64 // on expected peaks, if a process corrects a mistake; 0: bounds decide
}

// A result is the planner's path through a trial, with that of the order of remedies for
// comparison.
type result struct {
	trial
	attempts, ladder   int
	ratio, ladderRatio float64
	exact              *result // with exact plans first
	chosen             []chosen
	best               string
	expected           Prediction // of the best, before the first choice
}

// A chosen plan with its expected and its real need.
type chosen struct {
	plan         string
	mean, actual float64
	evidence     string
}

// An option is a row that a trial could reach.
type option struct {
	s       setting
	accum   int
	r       row
	changed bool // numerics
	order   int
}

func (o option) fits(cap int) bool { return float64(o.r.Peak)*expandableRoom <= float64(cap) }

func (o option) String() string {
	return fmt.Sprintf("%s/%s %s %s %d×%d", o.s.Params, o.s.Amp, o.s.Ckpt, o.s.Attn, o.s.Micro, o.accum)
}

// options are the rows of the first plan's optimizer and weights at its global batch, in the
// order of remedies. Autocast is a permitted change; another attention that keeps no scores does
// not change the numerics.
func (t trial) options() []option {
	var all []option
	for s, r := range t.l.rows {
		if s.Optim != t.first.Optim || s.Params != t.first.Params || s.Micro > t.first.Micro || t.first.Micro%s.Micro != 0 {
			continue
		}
		accum := t.first.Micro / s.Micro
		if s.Accum != min(accum, 2) || t.first.Amp != "off" && s.Amp == "off" || t.first.Attn == "sdpa" && s.Attn != "sdpa" {
			continue
		}
		key := s
		if key.Accum = 1; key == t.first {
			continue
		}
		o := option{s: key, accum: accum, r: r, changed: s.Amp != t.first.Amp}
		o.order = int(math.Round(math.Log2(float64(accum))))*4 + 2*int(given(s.Ckpt == "full"))
		if s.Attn == t.first.Attn && s.Attn == "eager" {
			o.order++
		}
		if o.changed {
			o.order += 100
		}
		all = append(all, o)
	}
	slices.SortFunc(all, func(a, b option) int { return cmp.Compare(a.order, b.order) })
	return all
}

// trials are all cases of a landscape.
func trials(l *landscape) []trial {
	var all []trial
	for s, r := range l.rows {
		if s.Accum != 1 || s.Optim != "adamw" || s.Ckpt != "none" || s.Micro != 8 && s.Micro != 16 && s.Micro != 32 {
			continue
		}
		for percent := 15; percent <= 90; percent += 5 {
			t := trial{l: l, first: s, cap: int(r.Peak * int64(percent) / 100)}
			if slices.ContainsFunc(t.options(), func(o option) bool { return o.fits(t.cap) }) {
				all = append(all, t)
			}
		}
	}
	slices.SortFunc(all, func(a, b trial) int {
		return cmp.Or(cmp.Compare(fmt.Sprint(a.first), fmt.Sprint(b.first)), cmp.Compare(a.cap, b.cap))
	})
	return all
}

// best is the throughput of the best row that fits: with the first plan's numerics, or if none of
// those fits, with permitted ones.
func (t trial) best(options []option) (float64, string) {
	for _, changed := range []bool{false, true} {
		most, what := 0., ""
		for _, o := range options {
			if o.changed == changed && o.fits(t.cap) && o.r.Samples > most {
				most, what = o.r.Samples, o.String()
			}
		}
		if most > 0 {
			return most, what
		}
	}
	return 0, ""
}

// walk follows the order of remedies without predictions: full checkpointing, halving, then
// precision.
func (t trial) walk(options []option) (attempts int, samples float64) {
	attempts = 1
	attn := "sdpa"
	for _, changed := range []bool{false, true} {
		for _, o := range options {
			if o.s.Ckpt != "full" || o.s.Attn != attn || o.changed != changed || changed && o.s.Micro > 1 {
				continue
			}
			if attempts++; o.fits(t.cap) {
				return attempts, o.r.Samples
			}
		}
	}
	return attempts, 0
}

// group is an option's group: a smaller micro batch counts as equal on average if exact plans
// come first.
func (o option) group(exactFirst bool) int {
	if o.changed {
		return 2
	}
	return int(given(exactFirst && o.accum > 1))
}

// play lets the planner solve a trial.
func (t trial) play(exactFirst bool) result {
	options := t.options()
	best, what := t.best(options)
	out := result{trial: t, attempts: 1, best: what}
	n, samples := t.walk(options)
	out.ladder, out.ladderRatio = n, samples/best
	m, _ := t.l.seen(t.first, 1, t.cap)
	all := []Measurement{m}
	device := DeviceMemory{Name: "NVIDIA H200", Total: 150 << 30, Allowed: int64(t.cap)}
	for len(options) > 0 {
		f := NewPredictor(TrainedModel{}, device, all)
		for _, o := range options {
			if o.String() == what && out.attempts == 1 {
				out.expected = f.Predict(o.s.plan(o.accum))
			}
		}
		var candidates []PlanCandidate
		for _, o := range options {
			candidates = append(candidates, PlanCandidate{Plan: o.s.plan(o.accum), Group: o.group(exactFirst), Order: o.order, Margin: t.margin})
		}
		c := Choose(f, candidates, "fastest")
		at := c.Index
		if at < 0 {
			at = conservative(options)
		} else {
			out.chosen = append(out.chosen, chosen{options[at].String(), float64(c.Prediction.Mean), float64(options[at].r.Peak), c.Prediction.Evidence + " " + c.Prediction.Instant + " " + c.Rule})
		}
		o := options[at]
		if out.attempts++; o.fits(t.cap) {
			out.ratio = o.r.Samples / best
			return out
		}
		if m, ok := t.l.seen(o.s, o.accum, t.cap); ok {
			all = append(all, m)
		}
		options = slices.Delete(options, at, at+1)
	}
	return out
}

// conservative is the next remedy in the order of remedies, as without a prediction.
func conservative(options []option) int {
	for i, o := range options {
		if o.s.Ckpt == "full" {
			return i
		}
	}
	return 0
}

// TestLandscapeReport replays a landscape: every case of a first plan that fails at a cap, the
// planner's choices until one fits, and those of the order of remedies.
func TestLandscapeReport(t *testing.T) {
	file := os.Getenv("LANDSCAPE")
	own := file == ""
	if own {
		file = landscapeFile
	}
	var all []result
	for _, l := range readLandscape(t, file) {
		var results []result
		for _, c := range trials(l) {
			played, exact := c.play(false), c.play(true)
			played.exact = &exact
			results = append(results, played)
		}
		if len(results) > 0 {
			t.Logf("%-22s %s", l.head.Model, line(summary(results)))
		}
		all = append(all, results...)
	}
	if len(all) == 0 {
		t.Fatalf("%s has no case", file)
	}
	if os.Getenv("LANDSCAPE_CASES") != "" {
		tell(t, all)
	}
	r := summary(all)
	t.Logf("%-22s %s", "all", line(r))
	if last := os.Getenv("LANDSCAPE_REPORT"); last != "" {
		if err := os.WriteFile(last, []byte(line(r)+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if own && (r.AttemptsLE2 < .97 || r.RatioMedian < .99 || r.RatioMean < .96 || r.RatioP10 < .88 || r.ErrorMedian > .03 || r.Under5 > .01) {
		t.Error("below what the planner must reach")
	}
}

// tell prints the cases with bad results.
func tell(t *testing.T, all []result) {
	for _, r := range all {
		bad := r.attempts > 2 || r.ratio < .9
		for _, c := range r.chosen {
			bad = bad || c.mean < .95*c.actual || c.mean > 1.1*c.actual
		}
		if !bad {
			continue
		}
		m, _ := r.l.seen(r.first, 1, r.cap)
		t.Logf("%s %v cap %.2f of %.2f (failed in %s): attempts %d ratio %.2f best %s (%.2f–%.2f)", r.l.head.Model, r.first, float64(r.cap)/(1<<30), float64(r.l.rows[r.first].Peak)/(1<<30), m.Failed, r.attempts, r.ratio, r.best, float64(r.expected.Mean)/(1<<30), float64(r.expected.Bound)/(1<<30))
		for _, c := range r.chosen {
			t.Logf("      %s mean %.2f actual %.2f (%+.1f %%) %s", c.plan, c.mean/(1<<30), c.actual/(1<<30), 100*(c.mean/c.actual-1), c.evidence)
		}
	}
}

// summary is the report of results.
func summary(all []result) report {
	r := report{Cases: len(all)}
	n := float64(len(all))
	var ratios, errors []float64
	under := 0.
	for _, c := range all {
		r.AttemptsLE2 += given(c.attempts <= 2 && c.ratio > 0) / n
		r.AttemptsMean += float64(c.attempts) / n
		r.RatioMean += c.ratio / n
		r.LadderAttempts += float64(c.ladder) / n
		r.LadderRatio += c.ladderRatio / n
		r.ExactRatio += c.exact.ratio / n
		r.ExactAttempts += float64(c.exact.attempts) / n
		ratios = append(ratios, c.ratio)
		for _, p := range c.chosen {
			errors = append(errors, math.Abs(p.mean-p.actual)/p.actual)
			under += given(p.mean < .95*p.actual)
		}
	}
	r.RatioMedian, r.RatioP10 = quantile(ratios, .5), quantile(ratios, .1)
	r.ErrorMedian, r.Under5 = quantile(errors, .5), under/math.Max(float64(len(errors)), 1)
	return r
}

// quantile returns a quantile of some numbers, with linear interpolation.
func quantile(v []float64, q float64) float64 {
	if len(v) == 0 {
		return 0
	}
	slices.Sort(v)
	at := q * float64(len(v)-1)
	i := int(at)
	if i+1 >= len(v) {
		return v[len(v)-1]
	}
	return v[i] + (at-float64(i))*(v[i+1]-v[i])
}

// line formats a report as JSON, its figures with three digits.
func line(r report) string {
	for _, v := range []*float64{&r.AttemptsLE2, &r.AttemptsMean, &r.RatioMedian, &r.RatioMean, &r.RatioP10, &r.LadderAttempts, &r.LadderRatio, &r.ErrorMedian, &r.Under5, &r.ExactRatio, &r.ExactAttempts} {
		*v = math.Round(*v*1e4) / 1e4
	}
	b, err := json.Marshal(r)
	if err != nil {
		panic(err) // a struct of numbers
	}
	return string(b)
}
