package hook

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/gpurun/gpurun/strategy"
)

// What a process says comes through whole.
func TestProcessReportIsReadWhole(t *testing.T) {
	const text = `{"pid": 7, "world": 2, "settings": {"micro_batch_size": 16, "pin_memory": true, "precision": "bf16", "optimizer": "adamw"},
		"told_by": {"micro_batch_size": "Trainer"}, "refused": {"attention": "no"}, "applied": {"activation_checkpointing": ["none", "full"], "micro_batch_size": ["", 8]}, "failed": {"precision": "x"},
		"model": {"class": "Net", "parameters": 3, "blocks": [{"path": "h", "class": "B", "count": 4}], "switch": "gradient_checkpointing_enable", "compiled": true},
		"waiting": true, "total_steps": 9, "problems": ["steps: KeyError"], "loss": {"scale": "wrong", "uniform": "no", "reason": "num_items_in_batch is ignored",
		"rows": "no", "rows_reason": "sort mixes the samples", "model_rows": "yes", "differs": "parameters change",
		"outside": {"steps": 9, "numbers": 2}, "numbers": {"lr of SGD": 0.1}}}`
	said, problems, ok := parseSaid([]byte(text))
	want := strategy.ProcessReport{
		PID: 7, World: 2, Settings: strategy.Plan{"micro_batch_size": "16", "pin_memory": "true", "precision": "bf16", "optimizer": "adamw"},
		By: map[strategy.Knob]string{"micro_batch_size": "Trainer"}, Refused: map[strategy.Knob]string{"attention": "no"},
		Applied: strategy.Changes{"activation_checkpointing": {"none", "full"}, "micro_batch_size": {"", "8"}}, Failed: map[strategy.Knob]string{"precision": "x"},
		Model: &strategy.Model{
			Class: "Net", Parameters: 3, Switch: "gradient_checkpointing_enable", Compiled: true,
			Blocks: []strategy.Blocks{{Path: "h", Class: "B", Count: 4}},
		},
		Waiting: true, TotalSteps: 9, Loss: &strategy.LossSeen{Scale: strategy.ScaleWrong, Uniform: "no", Reason: "num_items_in_batch is ignored", Rows: "no", RowsReason: "sort mixes the samples", ModelRows: "yes", Differs: "parameters change", Outside: &strategy.Outside{Steps: 9, Numbers: 2}, Numbers: map[string]float64{"lr of SGD": 0.1}},
	}
	if diff := cmp.Diff(want, said); diff != "" || !ok || len(problems) != 1 {
		t.Errorf("%v, %q: %s", ok, problems, diff)
	}
}

// Steps that were done again come through whole, and one entry that cannot be read does not affect the others.
func TestRepeatsInPlaceAreRead(t *testing.T) {
	const good = `{"rung": "checkpointing", "phase": "forward", "step": 1841, "times": 2, "last_step": 1850, "requested_bytes": 2147483648, "seconds": 0.29,
		"elements": 65536, "longest": 4096, "parts": 0, "at": 1732370000.5}`
	read := strategy.InPlace{
		Remedy: strategy.RemedyCheckpointing, Phase: "forward", Step: 1841, Times: 2, LastStep: 1850, Requested: 2 << 30, Seconds: strategy.Seconds(290 * time.Millisecond),
		Elements: 65536, Longest: 4096, At: time.Unix(1732370000, 5e8).UTC(),
	}
	expands, tried, many := read, read, read
	expands.Allocator = "expandable"
	tried.Trials = []strategy.Trial{{Recomputed: 3, Blocks: 12, Steps: 2, Seconds: read.Seconds, Kept: true}}
	many.Trials = slices.Repeat([]strategy.Trial{{Outcome: "out of memory"}}, mostItems)
	large := strategy.InPlace{Phase: "optimizer", Times: 1, Step: mostNumber, Requested: 0}
	for name, test := range map[string]struct {
		entries string
		want    []strategy.InPlace
	}{
		"one":                 {good, []strategy.InPlace{read}},
		"others are nonsense": {`7, null, {}, {"phase": "sleep", "times": 1}, {"phase": "forward", "times": 0}, {"phase": "forward", "times": "x"}, {"phase": "forward", "times": 1, "seconds": 1e300}, ` + good, []strategy.InPlace{read}},
		"trials":              {strings.TrimSuffix(good, "}") + `, "trials": [{"recomputed": 3, "blocks": 12, "steps": 2, "seconds": 0.29, "peak_bytes": -1, "outcome": "magic", "kept": true}]}`, []strategy.InPlace{tried}},
		"allocator":           {strings.TrimSuffix(good, "}") + `, "allocator": "expandable"}`, []strategy.InPlace{expands}},
		"another allocator":   {strings.TrimSuffix(good, "}") + `, "allocator": "magic"}`, []strategy.InPlace{read}},
		"many trials":         {strings.TrimSuffix(good, "}") + `, "trials": [` + strings.TrimSuffix(strings.Repeat(`{"outcome": "out of memory"},`, 999), ",") + `]}`, []strategy.InPlace{many}},
		"out of bounds":       {`{"rung": "magic", "phase": "optimizer", "times": 1, "step": 9000000000000000000, "requested_bytes": -4, "at": -1}`, []strategy.InPlace{large}},
		"too many":            {strings.TrimSuffix(strings.Repeat(good+",", 100), ","), slices.Repeat([]strategy.InPlace{read}, strategy.MostInPlace)},
	} {
		said, _, ok := parseSaid([]byte(`{"pid": 7, "in_place": [` + test.entries + `], "in_place_refused": {"phase": "backward", "step": 3, "reason": "` + strings.Repeat("x", 1000) + `"}}`))
		if diff := cmp.Diff(test.want, said.InPlace); diff != "" || !ok || said.InPlaceRefused == nil || len(said.InPlaceRefused.Reason) != longestText {
			t.Errorf("%s: %v, refused %+v: %s", name, ok, said.InPlaceRefused, diff)
		}
	}
	if said, _, ok := parseSaid([]byte(`{"pid": 7, "in_place_refused": {"phase": "sleep"}}`)); !ok || said.InPlaceRefused != nil {
		t.Errorf("%v, refused %+v", ok, said.InPlaceRefused)
	}
}

// What a job writes in its place is bounded, and what gpurun does not know is left out,
// knob by knob.
func TestHostileReportIsBounded(t *testing.T) {
	long := strings.Repeat("é", 1<<16)
	for name, test := range map[string]struct {
		text string
		want *strategy.ProcessReport // nil: it says nothing
	}{
		"empty":         {"", nil},
		"no object":     {"[]", nil},
		"null":          {"null", nil},
		"no process":    {`{"settings": {"micro_batch_size": 8}}`, nil},
		"half":          {`{"pid": 7, "settings": {"micro_`, nil},
		"deep":          {`{"pid": 7, "calls": ` + strings.Repeat("[", 20000), nil},
		"unknown knobs": {`{"pid": 7, "settings": {"batch": 8, "": 1}, "refused": {"batch": "x"}, "failed": {"x": "y"}, "applied": {"batch": [1, 2]}}`, &strategy.ProcessReport{PID: 7}},
		"bad values": {`{"pid": 7, "settings": {"micro_batch_size": -1, "precision": "int3", "gradient_accumulation_steps": {"a": 1}, "pin_memory": 3, "eval_batch_size": 1e400, "optimizer": "", "dataloader_workers": 2}}`,
			&strategy.ProcessReport{PID: 7, Settings: strategy.Plan{"dataloader_workers": "2"}}},
		"changes to nothing": {`{"pid": 7, "applied": {"micro_batch_size": [16, "few"], "precision": ["int3", "bf16"], "attention": "sdpa", "sharding": []}}`,
			&strategy.ProcessReport{PID: 7, Applied: strategy.Changes{"precision": {"", "bf16"}}}},
		"loss in other words": {`{"pid": 7, "loss": {"scale": "large", "uniform": true}}`, nil},
		"loss unknown":        {`{"pid": 7, "loss": {"scale": "large", "uniform": "maybe", "rows": "often", "rows_reason": "x"}}`, &strategy.ProcessReport{PID: 7, Loss: &strategy.LossSeen{}}},
		"who told nothing":    {`{"pid": 7, "told_by": {"micro_batch_size": "Trainer"}}`, &strategy.ProcessReport{PID: 7}},
		"negative":            {`{"pid": 7, "world": -3, "total_steps": -9, "model": {"parameters": -1, "bytes": {"x": -1}}}`, &strategy.ProcessReport{PID: 7, Model: &strategy.Model{}}},
		"pressure": {`{"pid": 7, "pressure": {"retries": -4, "steps": 20, "step": 9000000000000000000, "tried": "checkpointing", "kept": true}}`,
			&strategy.ProcessReport{PID: 7, Pressure: &strategy.Pressure{Steps: 20, Step: mostNumber}}},
		"huge": {`{"pid": 7, "model": {"parameters": 9000000000000000000}}`, &strategy.ProcessReport{PID: 7, Model: &strategy.Model{Parameters: mostNumber}}},
		"long": {`{"pid": 7, "refused": {"attention": "` + long + `"}, "settings": {"optimizer": "` + long + `"}}`,
			&strategy.ProcessReport{PID: 7, Refused: map[strategy.Knob]string{"attention": long[:longestText]}}},
	} {
		said, _, ok := parseSaid([]byte(test.text))
		if test.want == nil {
			if ok {
				t.Errorf("%s says %+v", name, said)
			}
			continue
		}
		if diff := cmp.Diff(*test.want, said); diff != "" || !ok {
			t.Errorf("%s: %v: %s", name, ok, diff)
		}
	}
	var many strategy.Model
	for i := range 10000 {
		many.Blocks = append(many.Blocks, strategy.Blocks{Path: fmt.Sprint(i)})
	}
	text, err := json.Marshal(map[string]any{"pid": 7, "model": many, "problems": strings.Split(long, "")})
	if err != nil {
		t.Fatal(err)
	}
	if said, problems, _ := parseSaid(text); len(said.Model.Blocks) != mostItems || len(problems) != mostProblems {
		t.Errorf("%d blocks, %d problems", len(said.Model.Blocks), len(problems))
	}
}

// Words and steps of a rank and of the processes that it starts are reported as they come.
func TestWatchProcesses(t *testing.T) {
	dir := t.TempDir()
	facts := make(chan strategy.Fact, 100)
	type at struct{ rank, n, total int }
	steps := make(chan at, 100)
	stop, _ := Watch(dir, []int{0, 1}, func(f strategy.Fact) { facts <- f }, func(rank int, s OptimizerStep) { steps <- at{rank, s.N, s.Total} })
	t.Cleanup(stop)
	in := func(name string) string { return filepath.Join(dir, "rank1", name) }
	record := func(n int) string {
		return fmt.Sprintf("%12d %12d %24.10g %20.6f -1 100 0 200 0 train 0 0 %12d\n", n, 9, 0.5, 1700000000.25, n)
	}
	step := func(want at) {
		t.Helper()
		select {
		case got := <-steps:
			if got != want {
				t.Errorf("step %+v, want %+v", got, want)
			}
		case <-time.After(2 * time.Minute):
			t.Errorf("step %+v was not told", want)
		}
	}

	rename(t, in("process.json"), `{"pid": 7, "settings": {"micro_batch_size": 16}, "problems": ["it broke"]}`)
	if f := next(t, facts); f.Rank != 1 || strategy.As[strategy.Gap](f) != "the hook in the training process: it broke" {
		t.Errorf("fact %+v", f)
	}
	if f := next(t, facts); f.Rank != 1 || f.Source != "probe" || strategy.As[*strategy.ProcessReport](f) == nil || strategy.As[*strategy.ProcessReport](f).PID != 7 || f.Time.IsZero() {
		t.Errorf("fact %+v", f)
	}
	rename(t, in("process-8.json"), `{"pid": 8, "waiting": true}`)
	if f := next(t, facts); f.Rank != 1 || strategy.As[*strategy.ProcessReport](f) == nil || strategy.As[*strategy.ProcessReport](f).PID != 8 || !strategy.As[*strategy.ProcessReport](f).Waiting {
		t.Errorf("fact %+v", f)
	}
	write(t, in("steps"), record(1))
	step(at{1, 1, 9})
	write(t, in("steps-8"), record(3)) // ahead
	step(at{1, 3, 9})
	write(t, in("steps"), record(2)) // behind
	write(t, in("steps-8"), record(4))
	step(at{1, 4, 9})
	write(t, in("steps-8"), record(2)) // it began anew
	step(at{1, 2, 9})

	// What is no news, half a record, and what else lies there.
	rename(t, in("process.json"), `{"pid": 7, "settings": {"micro_batch_size": 16}, "problems": ["it broke"], "time": 5}`)
	for _, name := range []string{"process-8.json.part", "process-x.json", "process-.json", "process-8-9.json", "xsteps", "steps-", "steps.1"} {
		write(t, in(name), `{"pid": 9}`)
	}
	for _, text := range []string{"", "\n", "1 2 3 4", "1 2 3 4 0 5 6 7 8 1", "1 2 3 4 0 5 6 7 8 2\n", "-1 2 3 4 0 5 6 7 8 -1\n", "1 -2 3 4 0 5 6 7 8 1\n", "1 2 x 4 0 5 6 7 8 1\n",
		"1 2 3 1e300 0 5 6 7 8 1\n", "1 2 3 nan 0 5 6 7 8 1\n", strings.Repeat("1", 1<<20)} {
		write(t, in("steps-9"), text)
	}
	if err := syscall.Mkfifo(in("steps-10"), 0o600); err != nil {
		t.Fatal(err)
	}
	stop()
	if len(facts) > 0 || len(steps) > 0 {
		t.Errorf("told more: %d facts, %d steps", len(facts), len(steps))
	}
}

// A rank that starts processes without end does not fill gpurun's memory.
func TestManyProcesses(t *testing.T) {
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "rank0"), 0o755); err != nil {
		t.Fatal(err)
	}
	for pid := 1; pid < 2*mostFiles; pid++ {
		write(t, filepath.Join(dir, "rank0", fmt.Sprintf("process-%d.json", pid)), fmt.Sprintf(`{"pid": %d}`, pid))
	}
	rename(t, filepath.Join(dir, "rank0", "probe.json"), fmt.Sprintf(oom, ""))
	n := 0
	stop, _ := Watch(dir, []int{0}, func(strategy.Fact) { n++ }, nil)
	stop()
	if n == 0 || n > mostFiles {
		t.Errorf("%d facts", n)
	}
}

// Of a parser's result only whole numbers and truth values are kept: a text may be a secret.
func TestArgumentsOfTheParser(t *testing.T) {
	said, _, ok := parseSaid([]byte(`{"pid": 7, "arguments": {"batch_size": 16, "amp": true, "lr": 0.1, "token": "hf_secret", "none": null, "list": [1]}}`))
	want := map[string]strategy.Value{"batch_size": "16", "amp": "true"}
	if !ok || !maps.Equal(said.Arguments, want) {
		t.Errorf("%t, %+v, want %v", ok, said, want)
	}
}
