package strategy

import "github.com/gpurun/gpurun/strategy/cause"

// place is where the job's own error was raised that the rank told of; nil where no traceback
// of it is known.
func (c *fold) place(d *Diagnosis, all []candidate, best candidate) (found *cause.Place) {
	if d.Cause != cause.UserError || d.Error == "" {
		return nil
	}
	for _, o := range all {
		if o.finding == nil || o.rank != best.rank || o.finding.Text != d.Error {
			continue
		}
		if at := o.finding.Place(); at != nil {
			found = at
		}
	}
	return found
}
