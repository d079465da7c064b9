package strategy

import (
	"testing"
	"time"
)

func TestTrialsAreShown(t *testing.T) {
	ms := func(n float64) Seconds { return Seconds(n * float64(time.Millisecond)) }
	first := Trial{Recomputed: 8, Blocks: 8, Elements: 4096, Steps: 1, Seconds: ms(174.5), Peak: 20 << 30}
	failed := Trial{Recomputed: 4, Blocks: 8, Elements: 4096, Outcome: "out of memory"}
	kept := Trial{Recomputed: 5, Blocks: 8, Elements: 4096, Steps: 3, Seconds: ms(150), Peak: 23 << 30, Kept: true}
	for _, test := range []struct {
		trial Trial
		want  string
	}{
		{first, "8 of 8 blocks recomputed: 1 step, 174.5ms a sample, peak 20.0 GiB"},
		{failed, "4 of 8 blocks recomputed: out of memory"},
		{kept, "5 of 8 blocks recomputed: 3 steps, 150ms a sample, peak 23.0 GiB; kept"},
		{Trial{Recomputed: 0, Blocks: 12, LossParts: true, Steps: 2, Outcome: "short of memory"}, "0 of 12 blocks recomputed, loss in parts: 2 steps, short of memory"},
		{Trial{Parts: 4, Moved: 3 << 30}, "batch in 4 parts, 3.0 GiB of activations in host memory"},
		{Trial{}, "as without gpurun"},
	} {
		if got := test.trial.Words(); got != test.want {
			t.Errorf("got  %s\nwant %s", got, test.want)
		}
	}
	for _, test := range []struct {
		trials []Trial
		want   string
	}{
		{[]Trial{first, failed, kept}, "rank 0: from now on 5 of 8 blocks recomputed, the fastest of 3 exact ways that were tried (150ms a sample, 174.5ms after the rescue)"},
		{[]Trial{{Recomputed: 8, Blocks: 8, Kept: true}}, "rank 0: from now on 8 of 8 blocks recomputed"},
		{[]Trial{first, failed}, ""},
		{nil, ""},
	} {
		if got := (InPlace{Trials: test.trials}).Tuned(); got != test.want {
			t.Errorf("got  %s\nwant %s", got, test.want)
		}
	}
}

// Only the policy permits to try other ways, and what is stricter counts.
func TestTuningNeedsPermission(t *testing.T) {
	for _, tune := range []bool{false, true} {
		if orders := AllowInPlace(Policy{InPlace: true, Tune: tune}, changeable(), nil, nil, "cuda"); orders == nil || orders.Tune != tune {
			t.Errorf("recovery.tune = %v: %+v", tune, orders)
		}
	}
}
