package hook

import (
	"testing"
)

// TestRecordedCallsAreLeftAlone: what torch.jit.trace or a CUDA graph records is neither
// measured nor changed: TensorBoard's add_graph traces a model before it is trained.
func TestRecordedCallsAreLeftAlone(t *testing.T) {
	for _, way := range []string{"trace", "graph"} {
		t.Run(way, func(t *testing.T) {
			m := measureIn(t, "recorded.py", way, false)
			if m.Batch != 4 || m.Longest != 32 || m.Longer.Longest != 0 || m.Steps != 5 || m.Calls != 1 {
				t.Errorf("batch %d of %d elements, longer %+v, %d steps with %d calls; want 5 steps of a batch of 4", m.Batch, m.Longest, m.Longer, m.Steps, m.Calls)
			}
		})
	}
}
