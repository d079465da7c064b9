package diagnose

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gpurun/gpurun/strategy/cause"
)

// diagnosed diagnoses files and folders of a tree. The names in the results are relative to it.
func diagnosed(t *testing.T, dir string, names ...string) []FileDiagnosis {
	t.Helper()
	t.Chdir(dir)
	var all []FileDiagnosis
	q := Request{Names: names, Attempt: -1, Stdin: os.Stdin, Show: func(d FileDiagnosis) error {
		all = append(all, d)
		return nil
	}}
	if err := q.Run(); err != nil {
		t.Fatal(err)
	}
	return all
}

// The files of one job are one diagnosis, whatever named them; files of different jobs are not.
func TestFilesOfOneJob(t *testing.T) {
	for name, jobs := range map[string][][]string{
		"slurm":           {{"slurm-7.out", "slurm-7.err"}, {"slurm-8.out", "slurm-8.err"}},
		"array":           {{"slurm-7_1.out"}, {"slurm-7_2.out"}},
		"log and err":     {{"train.log", "train.err"}, {"eval.log"}},
		"pbs":             {{"job.o123", "job.e123"}, {"job.o124"}},
		"pbs array":       {{"job.o123-1", "job.e123-1"}, {"job.o123-2"}},
		"ranks":           {{"rank0.log", "rank1.log", "rank2.log"}},
		"ranks in names":  {{"gpt-rank_00.out", "gpt-rank_00.err", "gpt-rank_01.out"}, {"bert-rank_00.out"}},
		"rank folders":    {{"run1/rank0/stdout", "run1/rank1/stdout"}, {"run2/rank0/stdout"}},
		"open mpi":        {{"1/rank.0/stdout", "1/rank.0/stderr", "1/rank.1/stdout"}},
		"lora":            {{"rank8.log"}, {"rank16.log"}, {"rank32.log"}},
		"deepspeed":       {{"20260302100000_rank0.log", "20260302100000_rank1.log", "20260302100003_rank2.log"}, {"20260302110000_rank0.log", "20260302110000_rank1.log"}},
		"submitit":        {{"123_0_log.out", "123_0_log.err", "123_1_log.out"}, {"124_0_log.out"}},
		"submitit array":  {{"123_4_0_log.out", "123_4_0_log.err"}, {"123_5_0_log.out"}},
		"kubernetes":      {{"gpt-master-0.log", "gpt-worker-0.log", "gpt-worker-1.log"}},
		"nodes":           {{"train.node-3.log", "train.node-7.log"}},
		"packed":          {{"slurm-7.out.gz", "slurm-7.err.gz"}},
		"torchrun":        {{"none_x/attempt_0/0/stderr.log", "none_x/attempt_0/1/stderr.log", "none_x/attempt_0/1/stdout.log"}},
		"different names": {{"a.log"}, {"b.log"}, {"exp_1.log"}, {"exp_2.log"}},
		"wandb":           {{"wandb/run-1-a/files/output.log"}, {"wandb/run-2-b/files/output.log"}},
	} {
		t.Run(name, func(t *testing.T) {
			files := map[string]string{}
			var names []string
			for _, job := range jobs {
				for _, f := range job {
					files[f], names = "step 1\n", append(names, f)
					if strings.HasSuffix(f, ".gz") {
						files[f] = packedText(t, "step 1\n")
					}
				}
			}
			var got [][]string
			for _, d := range diagnosed(t, tree(t, files), names...) {
				got = append(got, d.Files)
			}
			if diff := cmp.Diff(jobs, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// A folder is searched for output: what is no output of a job is passed over, and each job below
// it has one diagnosis.
func TestFolderOfManyJobs(t *testing.T) {
	files := map[string]string{
		"slurm-7.out": "step 1 loss 2.0\nstep 2 loss 1.9\n", "slurm-7.err": oom, "slurm-8.out.gz": packedText(t, oom),
		"notes.txt": oom, "README.md": oom, "train.py": oom, "config.yaml": oom, "metrics.csv": oom, "requirements.txt": oom,
		"model.log":                             "\x7fELF\x01\x02",
		".cache/x.log":                          oom,
		"ckpt/global_step10/model.pt":           "\x00\x01",
		"deepspeed/20260302_rank0.log":          oom,
		"ds/20260302100000_rank0.log":           "step 1\n",
		"ds/20260302100000_rank1.log":           oom,
		"wandb/run-1-a/files/output.log":        oom,
		"wandb/run-1-a/files/config.yaml":       "x: 1\n",
		"wandb/run-1-a/logs/debug.log":          oom,
		"wandb/run-1-a/logs/debug-internal.log": oom,
		"lightning_logs/version_0/metrics.csv":  "step,loss\n",
		"tr/none_x/attempt_0/0/stdout.log":      "step 1\n",
		"tr/none_x/attempt_0/1/stderr.log":      oom,
		"ids/4711/stdout.log":                   oom,
		"ids/4712/stdout.log":                   "step 1\n",
	}
	dir := tree(t, files)
	if err := os.Symlink(filepath.Join(dir, "slurm-7.err"), filepath.Join(dir, "latest.log")); err != nil {
		t.Fatal(err)
	}
	got := map[string]cause.Code{}
	for _, d := range diagnosed(t, dir, ".") {
		got[d.File] = d.Cause
	}
	want := map[string]cause.Code{
		"slurm-7.err,slurm-7.out": cause.CUDAOOM, "slurm-8.out.gz": cause.CUDAOOM, "deepspeed/20260302_rank0.log": cause.CUDAOOM,
		"ds/20260302100000_rank0.log,ds/20260302100000_rank1.log": cause.CUDAOOM, "wandb/run-1-a/files/output.log": cause.CUDAOOM,
		"tr": cause.CUDAOOM, "ids/4711": cause.CUDAOOM, "ids/4712": cause.None,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// The two streams of a job complete each other: the error is on one, its steps and the
// scheduler's lines are on the other.
func TestStreamsOfOneJob(t *testing.T) {
	dir := tree(t, map[string]string{
		"slurm-7.out": "step 1 loss 2.5\nstep 400 loss 2.4\n",
		"slurm-7.err": oom,
		"slurm-8.out": "step 1 loss 2.5\n",
		"slurm-8.err": "slurmstepd: error: *** JOB 8 ON n1 CANCELLED AT 2026-01-02T03:04:05 DUE TO TIME LIMIT ***\n",
		"rank0.log":   "step 1\n",
		"rank1.log":   oom,
	})
	all := diagnosed(t, dir, "slurm-7.out", "slurm-7.err", "slurm-8.err", "slurm-8.out", "rank0.log", "rank1.log")
	if len(all) != 3 {
		t.Fatalf("%d diagnoses", len(all))
	}
	if d := all[0]; d.Cause != cause.CUDAOOM || !d.Late || !slices.Equal(d.Files, []string{"slurm-7.out", "slurm-7.err"}) || d.Evidence[0].where != "slurm-7.err, " {
		t.Errorf("slurm-7: %s, late %v, of %q, in %q", d.Cause, d.Late, d.Files, d.Evidence[0].where)
	}
	if d := all[1]; d.Cause != cause.Preempted {
		t.Errorf("slurm-8: %s", d.Cause)
	}
	if d := all[2]; d.Cause != cause.CUDAOOM || d.Rank == nil || *d.Rank != 1 {
		t.Errorf("ranks: %s on rank %v", d.Cause, d.Rank)
	}
}

// A folder without any output is an error.
func TestFolderWithoutOutput(t *testing.T) {
	t.Chdir(tree(t, map[string]string{"empty/README.md": "x\n", "lightning_logs/version_0/metrics.csv": "x\n"}))
	for _, name := range []string{"empty", "lightning_logs"} {
		q := Request{Names: []string{name}, Attempt: -1, Stdin: os.Stdin, Show: func(FileDiagnosis) error { t.Error("shown"); return nil }}
		if err := q.Run(); err == nil || !strings.Contains(err.Error(), name+" holds no output of a job") {
			t.Errorf("%s: %v", name, err)
		}
	}
}
