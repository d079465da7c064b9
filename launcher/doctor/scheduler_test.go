package doctor

import (
	"fmt"
	"testing"
	"time"
)

func TestPlace(t *testing.T) {
	for _, c := range []struct {
		environ    []string
		state      CheckStatus
		found, fix string
	}{
		{nil, OK, "a plain host", ""},
		{[]string{"KUBERNETES_SERVICE_HOST=10.0.0.1"}, OK, "kubernetes via KUBERNETES_SERVICE_HOST", ""},
		{[]string{"SLURM_JOB_ID=7", "SLURMD_NODENAME=n1", "SLURM_JOB_NODELIST=n1"}, OK, "slurm-batch job=7 (n1) via SLURM_JOB_NODELIST", ""},
		{[]string{"SLURM_JOB_ID=7", "SLURM_JOB_NODELIST=n[1-2]"}, Problem, "this machine is not part of Slurm job 7", "srun --mpi=pmi2 --nodes=2"},
		{[]string{"PET_NNODES=many"}, Problem, `PET_NNODES="many" is not a whole number`, "unset it"},
	} {
		p := onPaper(t, nil)
		p.environ = c.environ
		wants(t, place(t.Context(), p), c.state, c.found, c.fix)
	}
}

func TestTime(t *testing.T) {
	t.Setenv("PATH", t.TempDir()) // no scontrol: the variables have to do
	slurm := func(end time.Time, more ...string) *patient {
		p := onPaper(t, nil)
		p.environ = append([]string{"SLURM_JOB_ID=7", "SLURMD_NODENAME=n1", "SLURM_JOB_NODELIST=n1", fmt.Sprintf("SLURM_JOB_END_TIME=%d", end.Unix())}, more...)
		return p
	}
	now := time.Now()
	wants(t, timeLeft(t.Context(), onPaper(t, nil)), Skipped, "no scheduler", "")
	wants(t, timeLeft(t.Context(), slurm(now.Add(10*time.Minute))), Warning, "until ", "--time")
	wants(t, timeLeft(t.Context(), slurm(now.Add(5*time.Hour))), Warning, "5h0m0s from now, and not started again", "--requeue")
	wants(t, timeLeft(t.Context(), slurm(now.Add(5*time.Hour), "SLURM_RESTART_COUNT=1")), OK, "and started again", "")
	wants(t, timeLeft(t.Context(), slurm(time.Unix(0, 0))), OK, "no end is known", "")
}
