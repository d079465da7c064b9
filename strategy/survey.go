package strategy

import (
	"cmp"

	"github.com/gpurun/gpurun/strategy/cause"
)

// An Offer is the possible effect of one remedy on a job that runs with a plan.
type Offer struct {
	Remedy    Remedy `json:"rung"`
	Available bool   `json:"available"`
	// Reason is why it is not available; if it is, the reason for its class of training.
	Reason string `json:"reason"`
	By     string `json:"by,omitempty"` // "recipe" or "hook" changes the plan; empty: nothing changes
	// Caveat is what the job's process may do instead: it follows "the process, which".
	Caveat  string  `json:"caveat,omitempty"`
	Changed Changes `json:"changed"`
	// Training is the effect of the change on the training; for a remedy that is not available,
	// the effect that is known without the job.
	Training Training `json:"training,omitempty"`
}

// Survey returns for each remedy, those for host memory last, its changes to the plan, whatever
// the phase of the failure.
func Survey(p Policy, j Job, plan Plan, inv Inventory) []Offer {
	s := &situation{policy: p, job: j, inventory: inv, plan: plan, onCPU: inv.Accelerator == "cpu"}
	return s.offers()
}

// SurveyAfter is Survey for a job of which an attempt has reported what its processes run with.
func SurveyAfter(p Policy, j Job, a Attempt, inv Inventory) []Offer {
	s := &situation{policy: p, job: j, inventory: inv, onCPU: inv.Accelerator == "cpu"}
	s.look([]Attempt{a})
	return s.offers()
}

func (s *situation) offers() (offers []Offer) {
	s.diagnosis = Diagnosis{Cause: cause.CUDAOOM, Phase: cause.NoPhase, Rank: -1}
	for _, row := range remedyRows {
		offers = append(offers, s.offer(row.remedy))
	}
	return offers
}

func (s *situation) offer(remedy Remedy) Offer {
	changes, skip := s.consider(remedy)
	if skip != nil {
		return Offer{Remedy: remedy, Reason: skip.Reason, Changed: Changes{}, Training: remedy.row().training}
	}
	next := s.plan.With(changes[0])
	offered := Offer{Remedy: remedy, Available: true, Changed: s.plan.Changed(next)}
	for k, pair := range offered.Changed {
		offered.Changed[k] = [2]Value{s.current(k), pair[1]}
		if s.job.Knobs[k].By == ByHook {
			offered.By = string(ByHook)
		} else if offered.By == "" {
			offered.By = "recipe"
		}
	}
	job := s.job
	job.Written = s.plan
	offered.Training, offered.Reason = job.Training(next, s.all)
	for k := range offered.Changed {
		offered.Caveat = cmp.Or(offered.Caveat, s.job.Knobs[k].Caveat)
	}
	return offered
}
