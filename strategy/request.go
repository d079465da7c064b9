package strategy

import (
	"fmt"
	"slices"

	"github.com/gpurun/gpurun/strategy/cause"
)

// A request is the single allocation that an attempt failed on, where it alone was
// more than the memory there is. No other tensor has to be known to tell that it
// stays too large with a slightly smaller batch.
type request struct {
	bytes int64
	room  int64 // what the device has, or the rank is held to, in bytes
	knob  Knob  // the batch that it was made for
	batch int   // its size
}

// request is the last attempt's, and false where it is not known, or was not too
// large by itself.
func (s *situation) request() (request, bool) {
	d := s.diagnosis
	r := request{room: s.room(), knob: MicroBatchSize}
	if d.Phase == cause.Eval {
		r.knob = EvalBatchSize
	}
	batch, known := s.job.used(s.last).Number(r.knob)
	if d.Requested == nil || !known || batch < 1 || r.room == 0 || *d.Requested <= r.room {
		return request{}, false
	}
	r.bytes, r.batch = *d.Requested, batch
	return r, true
}

// room is the most that a single request can be given, in bytes; 0 where that is
// not known.
func (s *situation) room() int64 {
	room := int64(0)
	for _, limit := range []*int64{s.diagnosis.Capacity, s.diagnosis.Allowed, &s.job.Ceiling} {
		if limit != nil && *limit > 0 && (room == 0 || *limit < room) {
			room = *limit
		}
	}
	return room
}

// least is what the request is at least with a smaller batch. A tensor has a part
// that does not depend on the batch and one that grows with it, so that half the
// batch needs at least half the bytes.
func (r request) least(batch int) float64 {
	return float64(r.bytes) * float64(batch) / float64(r.batch)
}

// leastSquared is least for a tensor that compares all samples of a batch with each
// other, as a contrastive loss does.
func (r request) leastSquared(batch int) float64 {
	return r.least(batch) * float64(batch) / float64(r.batch)
}

// fitting leaves out the batches with which the request of the last attempt would be
// more than there is room for, and says why if none remains. Where free leaves a
// kernel that keeps the attention's scores, the request may have been for those.
func (s *situation) fitting(changes []Plan, free Plan) (left []Plan, reason string) {
	r, known := s.request()
	_, otherKernel := free[Attention]
	if !known || otherKernel {
		return changes, ""
	}
	smallest := 0
	for _, c := range changes {
		batch, turned := c.Number(r.knob)
		if !turned || r.least(batch) <= float64(r.room) {
			left = append(left, c)
		} else if smallest == 0 || batch < smallest {
			smallest = batch
		}
	}
	if len(left) > 0 {
		return left, ""
	}
	if r.leastSquared(smallest) <= float64(r.room) {
		return slices.DeleteFunc(slices.Clone(changes), func(c Plan) bool { n, _ := c.Number(r.knob); return n != smallest }), ""
	}
	return nil, fmt.Sprintf("one request of %s was made with %s %d, and even with %d it would be more than %s",
		GiB(r.bytes), r.knob.Short(), r.batch, smallest, GiB(r.room))
}
