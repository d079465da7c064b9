package strategy

import "cmp"

import "maps"

// learn is what the job's processes told of knobs that no plan has, the newest word of
// each, and why a knob cannot be turned from inside.
func (j Job) learn(history []Attempt) (settings Plan, refused map[Knob]string) {
	settings, refused = Plan{}, map[Knob]string{}
	asked := false
	for _, a := range history {
		maps.Copy(settings, a.Observed)
		maps.Copy(refused, a.Refused)
		asked = asked || a.Asked
	}
	// These two show only once they are at work.
	for _, k := range []Knob{ActivationCheckpointing, OffloadActivations} {
		if asked && j.Knobs[k].By == ByHook && settings[k] == "" && refused[k] == "" {
			settings[k] = "none"
		}
	}
	return settings, refused
}

// without leaves out of a plan what the last attempt's has not and nobody changes: what a
// process told of itself is no setting that gpurun makes.
func (s *situation) without(next Plan, changes Plan) Plan {
	next = next.With(nil)
	for k := range next {
		_, had := s.last.Plan[k]
		if _, changed := changes[k]; !had && !changed {
			delete(next, k)
		}
	}
	return next
}

// unconfirmed says why a knob that was read from the job's source is left alone; empty
// where a process has said that it runs with the value that was read, or with another
// that it was given.
func (s *situation) unconfirmed(k Knob) string {
	if !s.job.Knobs[k].Confirm || len(s.history) == 0 {
		return ""
	}
	written := s.job.Written[k]
	for _, a := range s.history {
		if v := a.Observed[k]; v == written || v != "" && v == a.Plan[k] {
			return ""
		}
	}
	if k == GradientAccumulationSteps && s.unconfirmed(MicroBatchSize) == "" {
		return "" // a job that runs out of memory in its first step has not accumulated yet: it is held before that step next time
	}
	return k.Short() + " is in the source, and no process of the job has confirmed it yet"
}

// Unproven reports whether a plan changes the batch by what only the source of a script
// says: its processes have to confirm it before they train.
func (j Job) Unproven(plan Plan) bool {
	for _, k := range []Knob{MicroBatchSize, GradientAccumulationSteps} {
		if v, set := plan[k]; set && v != j.Written[k] && j.Knobs[k].Confirm {
			return true
		}
	}
	return false
}

// Redivides reports whether a plan divides the batch among another number of micro batches
// than the job as it is written: its processes confirm the scale of the loss before they train.
func (j Job) Redivides(plan Plan) bool {
	v, set := plan[GradientAccumulationSteps]
	return set && v != cmp.Or(j.Written[GradientAccumulationSteps], "1")
}

// unturnable says why the probe cannot turn a knob in the process; empty where it can.
func (s *situation) unturnable(k Knob) string {
	switch {
	case len(s.history) == 0:
		return "" // nobody has asked a process yet
	case s.inside[k] != "":
		return s.inside[k]
	case s.plan[k] == "":
		return "the job's process did not say whether it can be turned there"
	}
	return ""
}

// current is the value of a knob. Before any attempt one that the process will tell is
// taken for what most jobs have.
func (s *situation) current(k Knob) Value {
	r := s.job.Knobs[k]
	if v := s.plan[k]; v != "" || len(s.history) > 0 || len(k.words()) == 0 || r.By != ByHook && !r.Told || r.Doubtful {
		return v
	}
	return k.words()[0]
}
