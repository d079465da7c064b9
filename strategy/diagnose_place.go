package strategy

import "github.com/gpurun/gpurun/strategy/cause"

// place is where the error was raised that the rank told of, for want of memory only where it
// is a line of the job's own; nil where no traceback of it is known.
func (c *fold) place(d *Diagnosis, all []candidate, best candidate) (found *cause.SourceLine) {
	oom := d.Cause.OutOfMemory()
	if d.Cause != cause.UserError && !oom || d.Error == "" {
		return nil
	}
	for _, o := range all {
		if o.finding == nil || o.rank != best.rank || o.finding.Text != d.Error {
			continue
		}
		if at := o.finding.Place(); at != nil && (at.Own() || !oom) {
			found = at
		}
	}
	return found
}
