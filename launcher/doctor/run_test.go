package doctor

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

func contextOf() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), whole)
}

// Checks run at once, and their results have the order of the checks.
func TestChecksRunAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		takes := func(name string, d time.Duration) check {
			return check{name: name, examine: func(context.Context, *patient) Result { time.Sleep(d); return found("%s", name) }}
		}
		begin := time.Now()
		results := (&patient{}).run(t.Context(), []check{takes("slow", 3*time.Second), takes("fast", time.Second)})
		if took := time.Since(begin); took != 3*time.Second {
			t.Errorf("took %s", took)
		}
		for i, want := range []string{"slow", "fast"} {
			if results[i].Name != want || results[i].Found != want {
				t.Errorf("result %d: %+v, want %s", i, results[i], want)
			}
		}
	})
}

// A check that does not end in time is reported as such, even if nothing can end it.
func TestHangingCheck(t *testing.T) {
	for name, test := range map[string]struct {
		late  string
		deaf  bool
		whole time.Duration
		state CheckStatus
		found string
		takes time.Duration
	}{
		"that heeds its context":       {"mend it", false, time.Minute, Problem, "no answer after 10s", 10 * time.Second},
		"that the kernel holds":        {"mend it", true, time.Minute, Problem, "no answer after 10s", 10*time.Second + settle},
		"that says nothing of much":    {"", false, time.Minute, Warning, "no answer after 10s", 10 * time.Second},
		"that the others left no time": {"mend it", false, 4 * time.Second, Warning, "not finished", 4 * time.Second},
	} {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), test.whole)
			defer cancel()
			c := check{name: "x", lateFix: test.late, examine: func(ctx context.Context, _ *patient) Result {
				<-ctx.Done()
				if test.deaf {
					time.Sleep(time.Hour)
				}
				return problem("look", "%v", context.Cause(ctx))
			}}
			begin := time.Now()
			r := c.run(ctx, &patient{})
			if r.State != test.state || r.Found != test.found || time.Since(begin) != test.takes {
				t.Errorf("%s: %+v after %s", name, r, time.Since(begin))
			}
			time.Sleep(2 * time.Hour)
		})
	}
}

// A check that ended just in time is not late.
func TestResultAtTheDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := check{examine: func(ctx context.Context, _ *patient) Result { <-ctx.Done(); return found("there") }}.run(t.Context(), &patient{})
		if r.State != OK {
			t.Errorf("%+v", r)
		}
	})
}

// What needs a PyTorch is skipped without one, and says why.
func TestWithoutTorch(t *testing.T) {
	c := check{torch: true, examine: func(context.Context, *patient) Result { t.Error("looked"); return Result{} }}
	p := onPaper(t, nil)
	wants(t, c.run(t.Context(), p), Skipped, "there is no interpreter", "")
	p.python = withTorch(t, nil).python
	p.torch = func() (torchFacts, error) { return torchFacts{}, errors.New("no") }
	wants(t, c.run(t.Context(), p), Skipped, "does not list", "")
	p.torch = func() (torchFacts, error) { return torchFacts{Missing: true}, nil }
	wants(t, c.run(t.Context(), p), Skipped, "cannot be imported", "")
}
