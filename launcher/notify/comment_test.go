package notify

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gpurun/gpurun/launcher"
	"github.com/gpurun/gpurun/strategy"
)

// commented are the events of a run that is rescued once, and trains.
func commented() []launcher.Event {
	smaller := strategy.Plan{strategy.MicroBatchSize: "8", strategy.GradientAccumulationSteps: "4"}
	lost := &strategy.GPUTime{Total: 31, Lost: 31}
	trained := launcher.Verdict{Outcome: strategy.Trained, GPUTime: &strategy.GPUTime{Total: 9000, Lost: 31, Rescued: 8969, Rescues: 1}}
	return []launcher.Event{
		launcher.Began{Run: "r"}, launcher.Started{N: 0, Plan: strategy.Plan{strategy.MicroBatchSize: "32"}}, launcher.Ended{},
		launcher.Decided{Decision: strategy.Decision{Relaunch: true, Next: smaller}, GPUTime: lost},
		launcher.Started{N: 1, Plan: smaller}, launcher.Ended{Evidence: strategy.Evidence{Attempt: 1}},
		launcher.Decided{Decision: strategy.Decision{Outcome: strategy.Trained}, GPUTime: trained.GPUTime}, launcher.Finished{Verdict: trained},
	}
}

const rescuedComment = "rescued 8x4, 2 attempts, 31 GPU-s lost"

func TestCommentIsSetAtRescueAndEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var set []string
		c, show := NewComment(func(_ context.Context, text string) error { set = append(set, text); return nil }, func(launcher.Event) {})
		end := c.Begin(t.Context(), nil, func(text string) { t.Error(text) })
		for _, e := range commented() {
			show(e)
			synctest.Wait()
		}
		end()
		if want := []string{rescuedComment, rescuedComment}; !slices.Equal(set, want) {
			t.Errorf("%q, want %q", set, want)
		}
	})
}

// TestSlowSchedulerDelaysNothing: it hangs at the rescue. No event waits for it, the end of the run does so for a
// bounded time, and the newest comment is tried last.
func TestSlowSchedulerDelaysNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var tries int
		var notes []string
		hang := func(ctx context.Context, _ string) error { tries++; <-ctx.Done(); return errors.New("no answer") }
		c, show := NewComment(hang, func(launcher.Event) {})
		end := c.Begin(t.Context(), nil, func(text string) { notes = append(notes, text) })
		begin := time.Now()
		for _, e := range commented() {
			show(e)
			synctest.Wait()
		}
		if took := time.Since(begin); took > 0 {
			t.Errorf("the events took %s", took)
		}
		end()
		if took := time.Since(begin); took > commentBound+cancelBound || tries > 2 || len(notes) != 1 {
			t.Errorf("the end took %s, %d tries, notes %q", took, tries, notes)
		}
	})
}

// TestCommentWords: how runs end.
func TestCommentWords(t *testing.T) {
	lost := &strategy.GPUTime{Total: 90, Lost: 90}
	rescued := &strategy.GPUTime{Total: 7300, Lost: 7200.4, Rescues: 1}
	first := strategy.Plan{strategy.MicroBatchSize: "32"}
	plan := strategy.Plan{strategy.MicroBatchSize: "8", strategy.GradientAccumulationSteps: "4"}
	for want, got := range map[string]string{
		"":             lost.Comment(strategy.Trained, first, plan, 1),
		rescuedComment: (&strategy.GPUTime{Lost: 31, Rescues: 1}).Comment(strategy.Trained, first, plan, 2),
		"rescued in place, 1 attempt, 2.0 GPU-h lost":                         rescued.Comment(strategy.Trained, first, plan, 1),
		"rescued, 3 attempts, 2.0 GPU-h lost":                                 rescued.Comment("", plan, plan, 3), // the same plan again
		"rescued 32x1, 2 attempts, 2.0 GPU-h lost":                            rescued.Comment("", nil, first, 2), // the process reported the batch
		"rescued by checkpointing, 3 attempts, 2.0 GPU-h lost":                rescued.Comment("", nil, strategy.Plan{strategy.ActivationCheckpointing: "full"}, 3),
		"rescued by loss-parts, 2 attempts, 2.0 GPU-h lost":                   rescued.Comment("", first, first.With(strategy.Plan{strategy.GradientAccumulationSteps: "1", strategy.LossParts: "on"}), 2),
		"rescued by checkpointing and loss-parts, 3 attempts, 2.0 GPU-h lost": rescued.Comment("", first, first.With(strategy.Plan{strategy.ActivationCheckpointing: "full", strategy.LossParts: "on"}), 3),
		"rescued by loader workers, 2 attempts, 2.0 GPU-h lost":               rescued.Comment("", strategy.Plan{strategy.DataloaderWorkers: "4"}, strategy.Plan{strategy.DataloaderWorkers: "0"}, 2),
		"exhausted, 4 attempts, 90 GPU-s lost":                                lost.Comment(strategy.Exhausted, first, plan, 4),
		"retry, 1 attempt, 90 GPU-s lost":                                     lost.Comment(strategy.Retry, first, plan, 1),
	} {
		if got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	if got := (*strategy.GPUTime)(nil).Comment(strategy.Failed, first, plan, 1); got != "" {
		t.Errorf("without figures: %q", got)
	}
}
