package strategy

import (
	"slices"
	"time"

	"github.com/gpurun/gpurun/strategy/cause"
)

// What makes a rank that printed an out-of-memory traceback a rank that hangs.
const (
	// patienceSteps is how many of the longest steps a rank may be silent after an
	// out-of-memory traceback.
	patienceSteps = 5
	// outliving is for how many times its patience a suspect has to go on writing until
	// it is none any more: a training whose steps nobody recognises may be silent later.
	outliving = 10
	// streamLag is how much later than what was written after it a rank's line may be
	// read: its two streams are two pipes.
	streamLag = time.Second
	// asleep is by how much the detector is asked too late where gpurun did not run in
	// the meantime.
	asleep = 250 * time.Millisecond
)

// Suspects are the ranks that printed an out-of-memory traceback and live on. That is
// weak evidence: a job that handles the error prints the same. Their signs of life
// should be added before Verdict is asked.
func (d *Detector) Suspects() []int {
	var ranks []int
	for _, i := range d.suspects() {
		if rank := d.evidence.folded().findings[i].rank; !slices.Contains(ranks, rank) {
			ranks = append(ranks, rank)
		}
	}
	return ranks
}

// suspects are the indexes of the findings that make ranks suspect.
func (d *Detector) suspects() []int {
	c := d.evidence.folded()
	var all []int
	for i, s := range c.findings {
		_, ended := c.exits[s.rank]
		if s.finding.Code.OutOfMemory() && s.finding.Raised && s.finding.Weight == cause.WeightCause && !ended {
			all = append(all, i)
		}
	}
	return all
}

// silence reports whether a suspect was silent for long enough, and else sets when to look
// again. A rank that goes on writing, an emergency checkpoint for example, is left alone as
// long as it does; one that has gone on for very long is no suspect any more.
func (d *Detector) silence(now time.Time) (Stop, bool) {
	// Ranks are suspended together with gpurun, or with the whole machine.
	if !d.due.IsZero() && now.Sub(d.due) > asleep {
		d.woke = now
	}
	d.due = time.Time{}
	for _, i := range d.suspects() {
		rank, sign := d.signOf(i)
		patience := max(d.evidence.HangTimeout.Duration(), patienceSteps*sign.Longest.Duration())
		if trains(d.seen[i], sign) || sign.Output.Sub(d.seen[i]) >= outliving*patience {
			continue
		}
		last := latest(latest(d.seen[i], sign.Output), latest(sign.Others, d.woke))
		if silent := now.Sub(last); silent >= patience {
			return Stop{At: now, Reason: StopSilent, Rank: rank, For: Seconds(silent)}, true
		}
		d.due = earlier(d.due, last.Add(patience))
	}
	return Stop{}, false
}

// signOf is the rank of a finding and what it last let see of itself.
func (d *Detector) signOf(i int) (rank int, sign Sign) {
	c := d.evidence.folded()
	rank = c.findings[i].rank
	if at, known := c.signs[rank]; known {
		sign = *c.facts[at].Sign
	}
	return rank, sign
}

// trains reports whether a suspect has gone on training since a traceback: it has made
// a step since, or another rank has made one that it began after the traceback. A rank
// that synchronises with the suspect ends at most the step that it was in.
func trains(traceback time.Time, sign Sign) bool {
	after := traceback.Add(streamLag)
	return sign.Step.After(after) || sign.Others.After(after.Add(sign.Longest.Duration()))
}
