package memory

const (
	climbRoom = 0.08 // the measured peak leaves more than that of the room
	climbGain = 0.08 // of a step's time
	climbSafe = 1.03 // the mean, times this, fits
)

// Climb is the faster plan that a plan which trains gives way to once: with unchanged
// numerics, where the peak that was measured leaves more than 8 % of the room, the gain is
// 8 % of the time or more, and 1.03 times what is expected fits. gain is the fraction of a
// step's time that is saved; index is -1 where there is none.
func Climb(f *Predictor, current RankPlan, measured Measurement, candidates []PlanCandidate) (index int, gain float64) {
	peak := max(measured.Second.ForwardPeak, measured.Second.BackwardPeak, measured.Second.OptimizerPeak,
		measured.First.OptimizerPeak, measured.Longer.ForwardPeak, measured.Longer.BackwardPeak, measured.Longer.OptimizerPeak, measured.Peak)
	room := f.Room(current)
	if peak == 0 || float64(peak) > (1-climbRoom)*float64(room) {
		return -1, 0
	}
	now := measured.StepSeconds
	if now <= 0 {
		now = f.Predict(current).Seconds
	}
	index = -1
	for i, c := range candidates {
		if c.Group != 0 || c.Plan == current {
			continue
		}
		p := f.Predict(c.Plan)
		if p.Unknown != "" || p.Seconds <= 0 || climbSafe*float64(p.Mean) > float64(f.Room(c.Plan)) || !f.besideFits(p.Host, p.Pinned, p.NVMe) {
			continue
		}
		if g := 1 - p.Seconds/now; now > 0 && g >= climbGain && g > gain {
			index, gain = i, g
		}
	}
	return index, gain
}
