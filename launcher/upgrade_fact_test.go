package launcher

import (
	"bytes"
	"encoding/json"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/gpurun/gpurun/strategy"
	"github.com/gpurun/gpurun/strategy/cause"
)

func TestFactsOfVersion1(t *testing.T) {
	at := time.Date(2026, 3, 2, 10, 0, 0, 0, time.UTC)
	finding := func(f cause.Finding) strategy.Fact {
		f.Rank, f.Line, f.Phase = -1, 3, cause.NoPhase
		return strategy.Fact{Time: at, Rank: 1, Source: "stderr", Finding: &f}
	}
	for _, c := range []struct {
		name, fact string
		want       strategy.Fact
	}{
		{"a cause", `"sighting":{"code":"cuda-oom","raised":true,"phase":"unknown","rank":-1,"line":3,"text":"x","traceback":["a","x"],"figures":{"requested_bytes":2147483648}}`,
			finding(cause.Finding{Code: cause.CUDAOOM, Raised: true, Text: "x", Traceback: []string{"a", "x"}, Figures: cause.Figures{Requested: new(int64(2 << 30))}})},
		{"a symptom", `"sighting":{"code":"nccl-timeout","symptom":true,"phase":"unknown","rank":-1,"line":3,"text":"x"}`,
			finding(cause.Finding{Code: cause.NCCLTimeout, Weight: cause.WeightSymptom, Text: "x"})},
		{"a warning", `"sighting":{"code":"nccl-error","weak":true,"phase":"unknown","rank":-1,"line":3,"text":"x"}`,
			finding(cause.Finding{Code: cause.NCCLError, Weight: cause.WeightWarning, Text: "x"})},
		{"a symptom that is only a warning", `"sighting":{"code":"preempted","weak":true,"symptom":true,"phase":"unknown","rank":-1,"line":3,"text":"x"}`,
			finding(cause.Finding{Code: cause.Preempted, Weight: cause.WeightWarning, Text: "x"})},
		{"handled", `"sighting":{"code":"cuda-oom","handled":true,"stream":"stderr","seq":4,"phase":"unknown","rank":-1,"line":3,"text":"x"}`,
			finding(cause.Finding{Code: cause.CUDAOOM, Weight: cause.WeightHandled, Stream: "stderr", Seq: 4, Text: "x"})},
		{"handled, with steps after it", `"sighting":{"code":"cuda-oom","handled":true,"went_on":true,"phase":"unknown","rank":-1,"line":3,"text":"x"}`,
			finding(cause.Finding{Code: cause.CUDAOOM, Weight: cause.WeightHandled, Text: "x"})},
		{"steps after it", `"sighting":{"code":"cuda-oom","raised":true,"went_on":true,"phase":"unknown","rank":-1,"line":3,"text":"x"}`,
			finding(cause.Finding{Code: cause.CUDAOOM, Raised: true, Weight: cause.WeightOutlived, Text: "x"})},
		{"a warning that was handled", `"sighting":{"code":"cuda-oom","weak":true,"handled":true,"went_on":true,"phase":"unknown","rank":-1,"line":3,"text":"x"}`,
			finding(cause.Finding{Code: cause.CUDAOOM, Weight: cause.WeightHarmless, Text: "x"})},
		{"words that tell more", `"sighting":{"code":"unknown","symptom":true,"phase":"unknown","rank":-1,"line":3,"text":"DataLoader worker (pid 7) is Killed"}`,
			finding(cause.Finding{Code: cause.Unknown, Weight: cause.WeightSymptom, Remarks: []cause.Remark{cause.SaysWorker, cause.SaysKilled}, Text: "DataLoader worker (pid 7) is Killed"})},
		{"an observed setting", `"proof":{"knob":"micro_batch_size","value":8,"text":"bs 8"}`,
			strategy.Fact{Time: at, Rank: 1, Source: "stderr", Observed: &strategy.ObservedSetting{Knob: strategy.MicroBatchSize, Value: "8", Text: "bs 8"}}},
		{"steps", `"progress":{"steps":30,"first":1,"last":30,"longest":1500000000}`,
			strategy.Fact{Time: at, Rank: 1, Source: "stderr", Progress: &strategy.Progress{Steps: 30, First: 1, Last: 30, Longest: strategy.Seconds(1500 * time.Millisecond)}}},
		{"what has not changed", `"exit":{"code":137,"signal":9,"pid":12}`,
			strategy.Fact{Time: at, Rank: 1, Source: "stderr", Exit: &strategy.Exit{Code: 137, Signal: 9, PID: 12}}},
	} {
		for _, numbers := range []string{"float64", "json.Number"} {
			t.Run(c.name+" with "+numbers, func(t *testing.T) {
				dec := json.NewDecoder(bytes.NewReader([]byte(`{"time":"2026-03-02T10:00:00Z","rank":1,"source":"stderr",` + c.fact + `}`)))
				if numbers == "json.Number" {
					dec.UseNumber()
				}
				var fact map[string]any
				if err := dec.Decode(&fact); err != nil {
					t.Fatal(err)
				}
				upgradeFactV1(fact)
				text, err := json.Marshal(fact)
				if err != nil {
					t.Fatal(err)
				}
				var got strategy.Fact
				strict := json.NewDecoder(bytes.NewReader(text))
				strict.DisallowUnknownFields()
				if err := strict.Decode(&got); err != nil {
					t.Fatalf("%s: %v", text, err)
				}
				if diff := cmp.Diff(c.want, got); diff != "" {
					t.Errorf("(-want +got):\n%s", diff)
				}
			})
		}
	}
}
