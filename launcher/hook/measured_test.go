package hook

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gpurun/gpurun/strategy"
	"github.com/gpurun/gpurun/strategy/memory"
)

// What a process measured comes through whole, but for what the reader knows itself.
func TestMeasurementIsReadWhole(t *testing.T) {
	const text = `{"pid": 7, "rank": 3, "time": 1.5, "model": {"class": "Net", "parameters": 10, "trainable": 9, "bytes": {"float32": 40}, "buffer_bytes": 1, "outside": 2, "cast": 3,
		"cast_outside": 1, "largest": 4, "embedding": 5, "tied": true, "vocabulary": 6, "hidden": 7, "convolutional": true, "attention": true, "compiled": true, "blocks": [{"path": "h", "class": "B", "count": 2, "parameters": 8}]},
		"batch": 8, "longest": 64, "shape": [8, 8], "autocast": "bfloat16", "optimizer": "AdamW", "foreach": true, "state_bytes": 80, "calls": 2, "start_bytes": 11,
		"twice": "once more", "others_bytes": 51, "marks": [{"path": "h", "bytes": [12, 13], "ends": [52, 53], "outputs": [54, 55], "input_bytes": 14, "after_bytes": 15}], "first": {"longest": 64, "forward_bytes": 16, "forward_peak_bytes": 17, "backward_peak_bytes": 18,
		"before_bytes": 19, "micro_bytes": 20, "later_peak_bytes": 21, "optimizer_peak_bytes": 22, "after_bytes": 23}, "second": {"after_bytes": 24}, "longer": {"longest": 128},
		"evaluation_bytes": 25, "evaluation_batch": 26, "peak_bytes": 27, "reserved_bytes": 28, "held_bytes": 29, "retries": 31, "total_bytes": 32, "host_bytes": 33,
		"failed": "backward", "allocated_bytes": 34, "requested_bytes": 35, "allowed_bytes": 36, "steps": 37, "step_seconds": 0.5, "call_seconds": 0.25, "launch": {"forward_seconds": 0.125, "backward_seconds": 0.5, "at_most": true}, "outside_bytes": 99, "plan": {"micro_batch": 3}}`
	got, ok := parseMeasured([]byte(text))
	want := memory.Measurement{
		PID: 7, Batch: 8, Longest: 64, Shape: []int{8, 8}, Autocast: "bfloat16", Twice: "once more", Others: 51, Optimizer: "AdamW", Foreach: true, States: 80, Calls: 2, Start: 11,
		Model: &memory.TrainedModel{
			Class: "Net", Parameters: 10, Trainable: 9, Bytes: map[string]int64{"float32": 40}, Buffers: 1, Outside: 2, Cast: 3, CastOutside: 1, Largest: 4, Embedding: 5, Tied: true,
			Vocabulary: 6, Hidden: 7, Convolutional: true, Attention: true, Compiled: true, Blocks: []memory.BlockList{{Path: "h", Class: "B", Count: 2, Parameters: 8}},
		},
		Marks:  []memory.Marks{{Path: "h", Bytes: []int64{12, 13}, Ends: []int64{52, 53}, Outputs: []int64{54, 55}, Input: 14, After: 15}},
		First:  memory.StepMemory{Longest: 64, Forward: 16, ForwardPeak: 17, BackwardPeak: 18, Before: 19, Micro: 20, LaterPeak: 21, OptimizerPeak: 22, After: 23},
		Second: memory.StepMemory{After: 24}, Longer: memory.StepMemory{Longest: 128}, Evaluation: 25, EvaluationBatch: 26, Peak: 27, Reserved: 28, Held: 29, Retries: 31, Total: 32, Host: 33,
		Failed: "backward", Allocated: 34, Requested: 35, Allowed: 36, Steps: 37, StepSeconds: .5, CallSeconds: .25, Launch: memory.Launch{Forward: .125, Backward: .5, AtMost: true},
	}
	if diff := cmp.Diff(want, got); diff != "" || !ok {
		t.Errorf("%v: %s", ok, diff)
	}
}

// What a job writes in its place is bounded, and what is no measurement is none.
func TestHostileMeasurementIsBounded(t *testing.T) {
	for name, text := range map[string]string{
		"empty": "", "no object": "[]", "null": "null", "no process": `{"batch": 3}`, "half": `{"pid": 7, "batch`, "NaN": `{"pid": 7, "step_seconds": NaN}`,
		"no number": `{"pid": 7, "batch": "many"}`, "a negative process": `{"pid": -1}`, "too large": `{"pid": 7, "peak_bytes": 1e300}`, "deep": `{"pid": 7, "x": ` + strings.Repeat("[", 20000),
	} {
		if m, ok := parseMeasured([]byte(text)); ok || !reflect.DeepEqual(m, memory.Measurement{}) {
			t.Errorf("%s: %+v", name, m)
		}
	}
	long := strings.Repeat("é", 1<<16)
	many := strings.TrimSuffix(strings.Repeat("-5,", 1<<16), ",")
	text := fmt.Sprintf(`{"pid": 9223372036854775807, "batch": -3, "shape": [%s], "autocast": %q, "optimizer": %q, "failed": "never", "allocated_bytes": 3, "peak_bytes": 9223372036854775807,
		"step_seconds": -1, "call_seconds": 1e300, "first": {"after_bytes": -1}, "model": {"class": %q, "parameters": -1, "bytes": {"x": -1}, "blocks": [%s{}]},
		"marks": [{"path": %q, "bytes": [%s]}%s]}`, many, long, long, long, strings.Repeat("{},", 5000), long, many, strings.Repeat(`,{"bytes": []}`, 5000))
	m, ok := parseMeasured([]byte(text))
	if !ok || m.Batch != 0 || len(m.Shape) > mostDimensions || m.Shape[0] != 0 || len(m.Autocast) > longestText || len(m.Optimizer) > longestText || m.Failed != "" || m.Allocated != 0 ||
		m.Peak != mostNumber || m.StepSeconds != 0 || m.CallSeconds != mostSeconds || m.First.After != 0 || len(m.Model.Class) > longestText || m.Model.Parameters != 0 || len(m.Model.Bytes) > 0 ||
		len(m.Model.Blocks) > mostItems || len(m.Marks) > mostItems || len(m.Marks[0].Path) > longestText || len(m.Marks[0].Bytes) > mostNumbers || m.Marks[0].Bytes[0] != 0 {
		t.Errorf("%v: %.2000s", ok, fmt.Sprintf("%+v", m))
	}
	if size, err := json.Marshal(m); err != nil || len(size) > 256<<10 {
		t.Errorf("%d bytes, %v", len(size), err)
	}
}

// Each process's figures are reported when they change, and only then.
func TestMeasurementsAreReported(t *testing.T) {
	dir := t.TempDir()
	folder := filepath.Join(dir, "rank1")
	if err := os.MkdirAll(folder, 0o755); err != nil {
		t.Fatal(err)
	}
	write := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(folder, name+".part"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(filepath.Join(folder, name+".part"), filepath.Join(folder, name)); err != nil {
			t.Fatal(err)
		}
	}
	facts := make(chan strategy.Fact, 100)
	stop, _ := Watch(dir, []int{1}, func(f strategy.Fact) { facts <- f }, nil)
	t.Cleanup(stop)
	write("memory.json", `{"pid": 7, "time": 1, "peak_bytes": 5}`)
	if f := next(t, facts); f.Memory() == nil || f.Rank != 1 || f.Memory().Rank != 1 || f.Memory().Peak != 5 || f.Source != "probe" {
		t.Errorf("fact %+v", f)
	}
	write("memory.json", `{"pid": 7, "time": 2, "peak_bytes": 5}`)
	write("memory-8.json", `{"pid": 8, "peak_bytes": 6}`)
	if f := next(t, facts); f.Memory() == nil || f.Memory().PID != 8 {
		t.Errorf("fact %+v", f)
	}
	write("memory.json", `{"pid": 7, "time": 3, "peak_bytes": 9}`)
	if f := next(t, facts); f.Memory() == nil || f.Memory().Peak != 9 {
		t.Errorf("fact %+v", f)
	}
}
