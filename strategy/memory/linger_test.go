package memory

import (
	"bytes"
	"encoding/json"
	"math"
	"os"
	"testing"
)

// If the gradients of a step are held until after the next forward, the peak includes them and
// the logits: measured with Lightning's automatic optimization on an H200, once out of memory in
// the first forward, once trained with full checkpointing. It is not known by then whether the
// loss is made inside the root, so the prediction is above it.
func TestLingeringGradientsCount(t *testing.T) {
	text, err := os.ReadFile("testdata/h200-lightning.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	var seen [2]Measurement
	for i, line := range bytes.Split(bytes.TrimSpace(text), []byte("\n")) {
		if err := json.Unmarshal(line, &seen[i]); err != nil {
			t.Fatal(err)
		}
	}
	failed, trained := seen[0], seen[1]
	actual := float64(trained.Peak)
	p := NewPredictor(TrainedModel{}, DeviceMemory{}, []Measurement{failed}).Predict(trained.Plan)
	if off := math.Abs(float64(p.Mean)-actual) / actual; off > .1 || float64(p.Mean) < actual {
		t.Errorf("predicted %d–%d in %s, measured %.0f", p.Mean, p.Bound, p.Instant, actual)
	}
	failed.Linger = false
	if without := NewPredictor(TrainedModel{}, DeviceMemory{}, []Measurement{failed}).Predict(trained.Plan); without.Mean >= p.Mean {
		t.Errorf("without gradients that linger %d, with them %d", without.Mean, p.Mean)
	}
}
