package estimate

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/gpurun/gpurun/launcher/errext"
	"github.com/gpurun/gpurun/launcher/job"
	"github.com/gpurun/gpurun/strategy/memory"
)

// ask is the answer to a command line without a job.
func ask(t *testing.T, line string) (*Forecast, error) {
	t.Helper()
	r, err := Read(strings.Fields(line))
	if err != nil {
		return nil, err
	}
	return r.Answer()
}

// answered is an answer that has to come.
func answered(t *testing.T, line string) *Forecast {
	t.Helper()
	a, err := ask(t, line)
	if err != nil {
		t.Fatalf("%s: %v", line, err)
	}
	return a
}

const llama2 = "--layers 32 --hidden 4096 --heads 32 --intermediate 11008 --vocab 32000 "

// Flags say the shape; what they do not say is that of the size, or of the configuration.
func TestFlagsSetTheShape(t *testing.T) {
	const plan = " --precision bf16 --micro-batch 1 --sequence 128"
	a := answered(t, llama2+plan)
	if s := a.Architecture; s.Parameters != 6_738_415_616 || s.Assumed || s.AssumedVocabulary || s.KVHeads != 32 {
		t.Errorf("%+v", s)
	}
	a = answered(t, "7B --vocab 32000"+plan)
	if s := a.Architecture; s.Parameters != 7e9 || !s.Assumed || s.AssumedVocabulary || s.Vocabulary != 32000 || s.Layers != 32 {
		t.Errorf("%+v", s)
	}
	a = answered(t, "7B "+llama2+plan)
	if s := a.Architecture; s.Parameters != 7e9 || s.Assumed || s.Intermediate != 11008 {
		t.Errorf("%+v", s)
	}
	a = answered(t, "--layers 32 --hidden 4096 --vocab 32000"+plan)
	if s := a.Architecture; s.Intermediate != 11008 || s.Heads != 32 {
		t.Errorf("as Llama has it: %+v", s)
	}
	dir := t.TempDir()
	write(t, dir, "config.json", `{"model_type": "llama", "hidden_act": "silu", "hidden_size": 4096, "intermediate_size": 11008, "num_attention_heads": 32, "num_hidden_layers": 32, "vocab_size": 32000}`)
	a = answered(t, "--config "+dir+" --layers 16"+plan)
	if s := a.Architecture; s.Layers != 16 || s.Parameters >= 6_738_415_616 || s.Parameters < 3_000_000_000 {
		t.Errorf("half of it: %+v", s)
	}
	if s := answered(t, "--config "+dir+plan).Architecture; s.Parameters != 6_738_415_616 {
		t.Errorf("all of it: %+v", s)
	}
}

// Each way to hold weights, and the default: the words and the bytes.
func TestWeights(t *testing.T) {
	for flags, want := range map[string]struct {
		word  string
		rate  float64 // of Adam and its master copy
		words string
	}{
		"--precision bf16":                         {"fp32", 8, "autocast to bf16: 16 bytes a parameter"},
		"--precision fp32":                         {"fp32", 8, "weights: in fp32: 16 bytes a parameter"},
		"--precision bf16 --zero 1":                {"deepspeed", 12, "master copy"},
		"--precision bf16 --zero 3 --weights fp32": {"fp32", 8, "autocast"},
		"--precision bf16 --weights bf16":          {"bf16", 4, "in 16 bits, gradients and optimizer too: 8 bytes"},
		"--precision fp16 --weights deepspeed":     {"deepspeed", 12, "16 bytes a parameter"},
		"--precision bf16 --fsdp --gpus 4":         {"fp32", 8, "autocast"},
		"--weights bf16 --precision bfloat16":      {"bf16", 4, "tables with 8 GB mean fp32, those with 12 GB a master copy too"},
	} {
		a := answered(t, "1B --micro-batch 1 --sequence 64 "+flags)
		n := int64(1)
		if a.Plan.Sharding == "fsdp" {
			n = 4
		}
		if text := a.Text(); a.weights != want.word || a.Instants.Most.Optimizer*n != int64(want.rate*1e9) || !strings.Contains(text, want.words) {
			t.Errorf("%s: %s, %d\n%s", flags, a.weights, a.Instants.Most.Optimizer, text)
		}
	}
}

// What contradicts itself is refused with what to do.
func TestContradictions(t *testing.T) {
	for flags, want := range map[string]string{
		"--zero 2 --offload-param":           "add --zero 3",
		"--offload-optimizer":                "add --zero 1, 2 or 3",
		"--zero 2 --offload-optimizer=nvme":  "add --zero 3, or offload to cpu",
		"--zero 3 --offload-optimizer=disk":  "it takes cpu, or nvme",
		"--offload weights":                  "it takes optimizer, param, activations",
		"--fsdp --weights deepspeed":         "leave one of them out",
		"--fsdp --zero 2":                    "keep one of them",
		"--weights fp16":                     "give --precision fp16",
		"--zero 4":                           "it is one of 0, 1, 2, 3",
		"--heads 8 --kv-heads 9":             "query heads share",
		"--layers 0":                         "give a whole number from 1",
		"--parameters 8B":                    "keep one of them",
		"--checkpointing ful":                "did you mean full?",
		"--optimizer adamw8bit":              "did you mean adamw-8bit?",
		"--nproc-per-node 2":                 "gpurun help estimate",
		"--config none.json":                 "--parameters SIZE",
		"--offload-activations=nvme":         "it takes cpu",
		"--attention sdpaa":                  "did you mean sdpa?",
		"--precision bf61":                   "did you mean bf16?",
		"--weights deepsped":                 "did you mean deepspeed?",
		"--sequence -1 ":                     "give a whole number from 1",
		"--offload-optimizer --offload none": "it takes optimizer",
	} {
		if strings.HasPrefix(flags, "--precision") {
			_, err := ask(t, "7B --micro-batch 1 --sequence 1 "+flags)
			if err == nil || !strings.Contains(errext.Hint(err), want) {
				t.Errorf("%s: %v, %q", flags, err, errext.Hint(err))
			}
			continue
		}
		_, err := ask(t, "7B --precision bf16 --micro-batch 1 --sequence 1 "+flags)
		if err == nil || !strings.Contains(errext.Hint(err), want) {
			t.Errorf("%s: %v, %q; want the hint %q", flags, err, errext.Hint(err), want)
		}
	}
}

// A mistyped unit makes an impossible model: it is refused with the likely one.
func TestSizeOutOfBounds(t *testing.T) {
	_, err := ask(t, "70T --precision bf16 --micro-batch 1 --sequence 1")
	if err == nil || !strings.Contains(err.Error(), "ten trillion") || errext.Hint(err) != "B is for a billion: did you mean 70B?" {
		t.Errorf("%v, hint %q", err, errext.Hint(err))
	}
	if _, err := ask(t, "1T --precision bf16 --micro-batch 1 --sequence 1"); err != nil {
		t.Error(err)
	}
}

// The promised keys of the JSON, with sums that are sums.
func TestJSON(t *testing.T) {
	text, err := json.Marshal(answered(t, "8B --precision bf16 --micro-batch 2 --sequence 2048 --zero 3 --gpus 8"))
	if err != nil {
		t.Fatal(err)
	}
	var got struct {
		Parameters int64
		Instants   map[string]int64
		Parts      map[string]int64
		Peak       []int64                     `json:"peak_bytes"`
		Host       *int64                      `json:"host_bytes"`
		By         map[string]map[string]int64 `json:"parts_by_instant"`
		Cards      []struct {
			Bytes int64
			Fits  bool
		}
	}
	if err := json.Unmarshal(text, &got); err != nil {
		t.Fatal(err)
	}
	if got.Parameters != 8e9 || len(got.Instants) != 4 || len(got.Parts) != 5 || len(got.Peak) != 2 || got.Host == nil || len(got.Cards) != 7 {
		t.Errorf("%s", text)
	}
	highest := int64(0)
	for _, name := range []string{"load", "forward", "backward", "optimizer"} {
		sum := int64(0)
		for _, n := range got.By[name] {
			sum += n
		}
		if sum != got.Instants[name] || sum == 0 {
			t.Errorf("%s is %d, its parts %d", name, got.Instants[name], sum)
		}
		highest = max(highest, sum)
	}
	if highest != got.Peak[0] || got.Peak[1] < got.Peak[0] {
		t.Errorf("peak %v of %d", got.Peak, highest)
	}
}

func write(t *testing.T, dir, name, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Join(dir, filepath.Dir(name)), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// prepared is a job with some arguments and files, in a new folder.
func prepared(t *testing.T, args string, files map[string]string) *job.Prepared {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		write(t, dir, name, text)
	}
	write(t, dir, "train.toml", `[job]
program = ["true"]
args = [`+args+`]
[job.env]
HF_HOME = "`+dir+`/hf"
[launch]
nproc_per_node = 2
[knobs]
micro_batch_size            = { arg = "--bs", default = 8 }
gradient_accumulation_steps = { arg = "--accum", default = 1 }
sequence_length             = { arg = "--seq", default = 256 }
precision                   = { arg = "--precision", default = "bf16" }
optimizer                   = { arg = "--optim", default = "adamw" }
`)
	env := []string{"PATH=" + os.Getenv("PATH"), "CUDA_VISIBLE_DEVICES=", "HOME=" + dir, "XDG_CONFIG_HOME=" + dir}
	j, _, err := job.Open(t.Context(), []string{filepath.Join(dir, "train.toml")}, env, dir)
	if err != nil {
		t.Fatal(err)
	}
	p, err := job.Prepare(t.Context(), j, job.Surroundings{Environ: env})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

const gpt2 = `{"model_type": "gpt2", "activation_function": "gelu_new", "n_embd": 768, "n_head": 12, "n_layer": 12, "n_positions": 1024, "vocab_size": 50257}`

// The model of a job is found by its arguments, by the files that they name, and in Hugging
// Face's cache; one that is elsewhere is asked for.
func TestModelOfAJob(t *testing.T) {
	for args, files := range map[string]map[string]string{
		`"--model_name_or_path", "m"`:                        {"m/config.json": gpt2},
		`"--model-name-or-path=m"`:                           {"m/config.json": gpt2},
		`"--model_name_or_path", "other", "--config_name=m"`: {"m/config.json": gpt2, "other/config.json": `{}`},
		`"run.yaml"`:                                          {"m/config.json": gpt2, "run.yaml": "base_model: m\nlr: 1e-4\n"},
		`"--config", "run.yml"`:                               {"m/config.json": gpt2, "run.yml": "model:\n  model_name: m\n"},
		`"model.pretrained_model_name_or_path=m"`:             {"m/config.json": gpt2},
		`"--model", "openai/gpt"`:                             {"hf/hub/models--openai--gpt/snapshots/abc/config.json": gpt2},
		`"--model_config", "m/config.json"`:                   {"m/config.json": gpt2},
		`"--model_name_or_path", "m", "--config", "gone.yml"`: {"m/config.json": gpt2},
	} {
		r, err := Read([]string{"train.toml"})
		if err != nil {
			t.Fatal(err)
		}
		r.Of(prepared(t, args, files), nil)
		a, err := r.Answer()
		if err != nil || a.Architecture.Parameters != 124_439_808 || !strings.HasSuffix(a.from, "config.json") {
			t.Errorf("%s: %v, %+v", args, err, a)
			continue
		}
		if p := a.Plan; p.MicroBatch != 8 || p.Sequence != 256 || p.Compute != "bf16" || p.DataParallel != 2 || p.Weights != "fp32" {
			t.Errorf("%s: %+v", args, p)
		}
	}
	for args, want := range map[string]string{
		`"--model", "openai/gpt"`:     "the job's model openai/gpt is not on this machine, and gpurun does not download it",
		`"--bs", "4"`:                 "gpurun does not find which model the job trains",
		`"--model_name_or_path", "m"`: "read the model's shape from",
	} {
		r, err := Read([]string{"train.toml"})
		if err != nil {
			t.Fatal(err)
		}
		r.Of(prepared(t, args, map[string]string{"m/config.json": "{}"}), nil)
		if _, err := r.Answer(); err == nil || !strings.HasPrefix(err.Error(), want) || !strings.Contains(errext.Hint(err), "--parameters SIZE") {
			t.Errorf("%s: %v, %q", args, err, errext.Hint(err))
		}
	}
}

// What a process of the job measured is its model's shape, and its peak is shown.
func TestMeasurementsOfEarlierRuns(t *testing.T) {
	model := &memory.TrainedModel{Class: "GPT", Parameters: 123_000_000, Hidden: 768, Vocabulary: 50257, Blocks: []memory.BlockList{{Path: "h", Count: 12, Parameters: 85_000_000}}}
	ran := memory.RankPlan{MicroBatch: 8, Weights: "fp32", Compute: "bf16", Checkpointing: "", Optimizer: "adamw", DataParallel: 2, Sequence: 256}
	r, err := Read([]string{"train.toml"})
	if err != nil {
		t.Fatal(err)
	}
	r.Of(prepared(t, ``, nil), []memory.Measurement{{Plan: memory.RankPlan{MicroBatch: 4}, Peak: 5 << 30}, {Plan: ran, Model: model, Peak: 7 << 30}})
	a, err := r.Answer()
	if err != nil {
		t.Fatal(err)
	}
	text := a.Text()
	if a.Architecture.Parameters != 123_000_000 || a.Architecture.Layers != 12 || !strings.Contains(text, "measured in an earlier run of this plan: 7.0 GiB") || strings.Contains(text, "this plan: 5.0 GiB") || !strings.Contains(text, "model: from an earlier run of this job") {
		t.Errorf("%+v\n%s", a.Architecture, text)
	}
}

// An optimizer of unknown bytes is counted as AdamW, and the output says so.
func TestUnknownOptimizerOfAJob(t *testing.T) {
	r, err := Read([]string{"train.toml", "--parameters", "124M"})
	if err != nil {
		t.Fatal(err)
	}
	r.Of(prepared(t, `"--optim", "sophia"`, nil), nil)
	a, err := r.Answer()
	if err != nil || a.Plan.Optimizer != "adamw" || !strings.Contains(a.Text(), "the bytes of sophia are not known") {
		t.Errorf("%v, %+v", err, a)
	}
}

// docs/estimate.md has every card.
func TestCardsAreDocumented(t *testing.T) {
	a := answered(t, "8B --precision bf16 --micro-batch 1 --sequence 4096")
	page, err := os.ReadFile(filepath.Join("..", "..", "docs", "estimate.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range a.Cards {
		row := regexp.MustCompile(fmt.Sprintf(`(?m)^\| %d GB \(.*\) \| %.1f GiB \|$`, c.Gigabytes, float64(c.Bytes)/(1<<30)))
		if !row.Match(page) {
			t.Errorf("docs/estimate.md has no row %s", row)
		}
	}
}
