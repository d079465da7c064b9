package memory

import "testing"

// TestExcludedPlansDoNotFit: after one failure, no row of the landscape fits that a measured
// prediction excludes, and hardly one that is said to be impossible.
func TestExcludedPlansDoNotFit(t *testing.T) {
	excluded, impossible, wrong := 0, 0, 0
	for _, l := range readLandscape(t, landscapeFile) {
		for _, c := range trials(l) {
			m, _ := c.l.seen(c.first, 1, c.cap)
			f := NewPredictor(TrainedModel{}, DeviceMemory{Name: "NVIDIA H200", Total: 150 << 30, Allowed: int64(c.cap)}, []Measurement{m})
			for _, o := range c.options() {
				plan := o.s.plan(o.accum)
				p, fits := f.Predict(plan), o.r.Peak <= int64(c.cap)
				if p.Measured() && f.Excludes(plan, &p) {
					if excluded++; fits {
						t.Errorf("%s, %s fits %s GiB with %s, predicted %s–%s", l.head.Model, o, gib(float64(c.cap)), gib(float64(o.r.Peak)), gib(float64(p.Mean)), gib(float64(p.Bound)))
					}
				}
				if f.Impossible(plan, &p) {
					impossible++
					wrong += int(given(fits))
				}
			}
		}
	}
	if excluded < 400 || impossible < 300 || wrong > 1 {
		t.Errorf("%d excluded, %d impossible, of which %d fit", excluded, impossible, wrong)
	}
	t.Logf("%d excluded, %d impossible, of which %d fit", excluded, impossible, wrong)
}
