package main

import (
	"fmt"
	"os"

	"github.com/gpurun/gpurun/launcher/cluster"
	"github.com/gpurun/gpurun/launcher/errext"
	"github.com/gpurun/gpurun/launcher/job"
	"github.com/gpurun/gpurun/launcher/journal"
	"github.com/gpurun/gpurun/strategy"
)

// onlyTried ends a job that its scheduler has started again and again without ever beginning a run: then exit
// code 75, "try again", does not help. After a run has begun, runstate.Run.Standstill bounds its restarts.
func onlyTried(err error, j *job.Job, own job.Own) error {
	place, bad := cluster.Detect(os.Environ())
	if bad != nil || errext.Code(err, 0) != strategy.CodeRetry || place.RestartCount < journal.StandstillBound {
		return err
	}
	s := searchOf(j, own)
	s.Scheduler = place.Identity()
	if s.Scheduler == "" || s.Known() {
		return err
	}
	err = fmt.Errorf("the scheduler has started this job again %d times, and no start got as far as running it: %w",
		place.RestartCount, err)
	return errext.WithCode(err, strategy.CodeUsage)
}
