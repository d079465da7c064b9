package strategy

import "github.com/gpurun/gpurun/strategy/cause"

// warnedOf makes causes of the warnings that later errors bear out: a driver that is too
// old is only warned of, and what fails then is a request for a GPU.
func (c *fold) warnedOf(all []candidate) []candidate {
	for i, warning := range all {
		if warning.finding == nil || warning.tier != tierWarning {
			continue
		}
		for _, failure := range all {
			f := failure.finding
			if f == nil || !f.Raised || failure.rank != warning.rank || failure.tier > tierSymptom {
				continue
			}
			denied := warning.code == cause.Driver && f.Code == cause.UserError && f.Says(cause.SaysNoDevice)
			mismatch := warning.finding.Says(cause.SaysMismatch) && f.Code == cause.NCCLError
			if denied || mismatch {
				all[i].code, all[i].tier = cause.Driver, tierCause
				break
			}
		}
	}
	return all
}

// before returns what brought the chosen candidate about, where it came earlier and words
// alone would not say so.
func before(best candidate, all []candidate) candidate {
	for _, other := range all {
		switch {
		case other.finding == nil || best.finding == nil || other.order >= best.order || other.tier > tierOwn:
		case mistake(other, best), lost(other, best):
			return other
		}
	}
	return best
}

// mistake reports whether an index that was out of range left the program before the
// assertion that a library then failed with, in the same process.
func mistake(index, assertion candidate) bool {
	return assertion.code == cause.DeviceAssert && index.finding.Top && index.finding.Says(cause.SaysIndex) &&
		index.rank == assertion.rank && index.finding.Stream == assertion.finding.Stream
}

// lost reports whether a GPU's error came before the scheduler cancelled the job: what
// was left of it hung until then.
func lost(device, cancel candidate) bool {
	return cancel.code == cause.Preempted && cancel.finding.Says(cause.SaysCancelled) && !cancel.finding.Raised &&
		device.finding.Says(cause.SaysDevice) && device.finding.Weight == cause.WeightCause
}
