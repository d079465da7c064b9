package job

import (
	"path/filepath"
	"slices"
	"strings"

	"github.com/gpurun/gpurun/strategy"
)

// readResume reads [resume], whose first two keys need each other.
func (r *reader) readResume() {
	t := r.table("resume")
	latest, args := t.file("latest", ""), t.words("args")
	switch {
	case t.has("latest") && !t.has("args"):
		r.problems = append(r.problems, Problem{Key: []string{"resume", "latest"},
			Message: `needs resume.args, which tell the job to resume, such as ["--resume", "{latest}"]`})
	case t.has("args") && !t.has("latest"):
		r.problems = append(r.problems, Problem{Key: []string{"resume", "args"},
			Message: `needs resume.latest, a pattern for checkpoints such as "out/ckpt-*"`})
	}
	if args != nil && !slices.ContainsFunc(args, func(a string) bool { return strings.Contains(a, "{latest}") }) {
		t.bad("args", "none of them has {latest}, where the checkpoint's path goes")
	}
	if latest == "" && t.has("latest") {
		t.filled("latest")
	}
	if _, err := filepath.Match(latest, ""); err != nil {
		t.bad("latest", "%q is not a pattern: a bracket or a backslash is left open", latest)
	}
	if t.has("data") && !t.has("latest") {
		t.bad("data", "says what a job does that resumes: it needs resume.latest and resume.args")
	}
	r.job.Resume = Resume{Latest: r.pattern(latest), Args: args, Data: t.filled("data")}
}

// pattern makes a pattern absolute; what is special in the folder's own name is
// quoted.
func (r *reader) pattern(p string) string {
	if p == "" || filepath.IsAbs(p) {
		return p
	}
	quoted := strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`).Replace(r.dir)
	return filepath.Join(quoted, p)
}

// readProgress reads [progress].
func (r *reader) readProgress() {
	t := r.table("progress")
	step := t.Expression("step")
	if step == nil {
		return
	}
	pattern, unknown := strategy.StepPatternOf(step.SubexpNames())
	switch {
	case len(unknown) > 0:
		t.bad("step", "the group %q means nothing; groups can be called step, total and loss", unknown[0])
		return
	case pattern.Step == 0:
		t.bad("step", `has no group for the step's number, such as (\d+)`)
		return
	}
	r.job.Progress.Step = step
}
