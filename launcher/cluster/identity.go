package cluster

import "strings"

// Identity names the scheduler's job for the run directory: the same in every step
// of the job and after each requeue of it, empty where there is no scheduler. The
// step is no part of it, since a command before gpurun in the same batch script may
// be left out when the job is started again.
func (p Place) Identity() string {
	if p.Job == "" {
		return ""
	}
	kind := string(p.Kind)
	if p.Slurm() {
		kind = "slurm"
	}
	return kind + " " + p.Job
}

// Slurm reports whether a Slurm job is what placed gpurun here.
func (p Place) Slurm() bool { return strings.HasPrefix(string(p.Kind), "slurm") }
