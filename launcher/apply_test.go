package launcher

import (
	"maps"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gpurun/gpurun/launcher/errext"
	"github.com/gpurun/gpurun/strategy"
	"github.com/gpurun/gpurun/strategy/cause"
)

// faultyRecipe panics or fails for some plans.
type faultyRecipe struct {
	*stage
	in func(strategy.Plan) bool
}

func (r faultyRecipe) Apply(p strategy.Plan, by strategy.Arguments, checkpoint, dir string) (strategy.Command, error) {
	if r.in(p) {
		panic("planted")
	}
	return r.stage.Apply(p, by, checkpoint, dir)
}

// After a panic of a recipe, the job's own error stays in the verdict. A plan without the changes that could
// not be written is tried; if there is none, the run ends because of memory. If nothing has run yet, the run
// ends with the bug.
func TestAPanicOfARecipeHidesNoError(t *testing.T) {
	ranOut := script{acts: []act{raised(time.Minute, 0, cause.CUDAOOM), exit(time.Minute, 0, 1)}}
	well := script{acts: []act{exit(time.Hour, 0, 0), exit(time.Hour, 1, 0)}}
	for name, test := range map[string]struct {
		in       func(strategy.Plan) bool
		outcome  strategy.Outcome
		code     int
		attempts int
		says     string // the verdict, or the error
	}{
		"one change":    {func(p strategy.Plan) bool { return p[strategy.ActivationCheckpointing] == "full" }, strategy.Trained, 0, 3, ""},
		"every change":  {func(p strategy.Plan) bool { return !maps.Equal(p, plan0) }, strategy.Exhausted, strategy.CodeExhausted, 3, "CUDA out of memory in backward on rank 0"},
		"at the start":  {func(strategy.Plan) bool { return true }, "", 0, 0, "this is a bug in gpurun"},
		"on resumption": {nil, strategy.Failed, strategy.CodeBug, 2, "a collective operation timed out"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &stage{t: t, scripts: []script{ranOut, well, well}}
				if test.in == nil { // the same plan again
					s.scripts[0] = script{acts: []act{raised(time.Minute, 0, cause.NCCLTimeout), exit(time.Minute, 0, 1)}}
					test.in = func(strategy.Plan) bool { return len(s.applied) > 0 }
				}
				l := newLauncher(s)
				l.Recipe = faultyRecipe{s, test.in}
				v, err := l.Run(t.Context(), first())
				if test.outcome == "" {
					if err == nil || !strings.Contains(err.Error(), test.says) || errext.Code(err, 0) != strategy.CodeBug {
						t.Fatalf("%+v, %v", v, err)
					}
					return
				}
				if err != nil || v.Outcome != test.outcome || v.Code != test.code || len(v.Attempts) != test.attempts {
					t.Fatalf("%+v, %v", v, err)
				}
				if v.Attempts[0].Cause != cause.CUDAOOM && v.Attempts[0].Cause != cause.NCCLTimeout || v.Attempts[0].Error == "" {
					t.Errorf("the job's error is lost: %+v", v.Attempts[0])
				}
				if said := v.Attempts[1].Error; !strings.Contains(said, "this is a bug in gpurun: planted (in launcher.faultyRecipe.Apply, apply_test.go:") {
					t.Errorf("attempt 1: %q", said)
				}
				if test.outcome != strategy.Trained && !strings.Contains(v.Reason, test.says) {
					t.Errorf("the verdict does not say how the job ended: %q", v.Reason)
				}
			})
		})
	}
}
