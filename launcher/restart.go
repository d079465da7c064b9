package launcher

import (
	"errors"
	"slices"

	"github.com/gpurun/gpurun/launcher/errext"
	"github.com/gpurun/gpurun/strategy"
)

// Restart prepares the attempt that comes next when a run is started again: what was
// decided is asked once more, as far as it rests on checkpoints, which may be gone.
// found looks for them, given the one that was decided. The notice is for people,
// empty where there is nothing to tell.
//
// An error, with an exit code and a hint, means that too much work would be thrown
// away. The run stays as it is.
func (s State) Restart(job strategy.Job, found func(decided string) strategy.Checkpoints) (next State, notice string, err error) {
	s.History = slices.Clone(s.History)
	s.reopen()
	switch {
	case s.undecided: // Run decides, by what there is now
		return s, "", nil
	case s.Next.Checkpoint == "" && !s.Next.ran: // from the beginning, as decided
		return s, "", nil
	}
	again := strategy.Again(s.Policy, job, s.History, strategy.Pending{
		N: s.Next.N, Plan: s.Next.Plan, Checkpoint: s.Next.Checkpoint, Ran: s.Next.ran, Began: s.Next.began,
	}, found(s.Next.Checkpoint))
	if again.Refused != "" {
		return s, "", errext.WithCode(errext.WithHint(errors.New(again.Refused), again.Hint), strategy.CodeExhausted)
	}
	s.Next.Checkpoint = again.Checkpoint
	return s, again.Notice, nil
}
