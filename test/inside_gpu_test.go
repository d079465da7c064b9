package test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math"
	"os"
	osexec "os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gpurun/gpurun/launcher"
	"github.com/gpurun/gpurun/strategy"
)

// An inside is a training script in testdata/inside with constants in its code, without a train.toml or
// arguments. gpurun precedes its line.
type inside struct {
	name  string
	line  []string // words after the interpreter, or a launcher's whole line if torchrun is its first word
	env   []string
	needs []string
	gpus  int
	// share is the part of the untouched job's peak that it may use.
	share float64
	own   bool // the model has its own switch, which OWN=1 sets
	// batch: the remedy is a smaller micro batch.
	batch bool
}

var insides = []inside{
	{name: "gpt", line: []string{"gpt.py"}, share: .75},
	{name: "trainer", line: []string{"trainer.py"}, needs: []string{"transformers", "accelerate"}, share: .6, own: true},
	{name: "lightning", line: []string{"lit.py"}, needs: []string{"lightning"}, share: .6, batch: true},
	{name: "accelerate", line: []string{"loop.py"}, needs: []string{"transformers", "accelerate"}, share: .6, own: true},
	{name: "ddp", line: []string{"torchrun", "--standalone", "--nproc-per-node", "2", "ddp.py"}, gpus: 2, share: .75},
	// Rank 0 holds more than rank 1, on the same GPU.
	{name: "short-rank", line: []string{"torchrun", "--standalone", "--nproc-per-node", "2", "ddp.py"}, env: []string{"BACKEND=gloo", "HELD=8"}, share: .85},
	{name: "vit", line: []string{"vision.py", "vit_large_patch16_224", "64"}, needs: []string{"timm"}, share: .6, own: true},
	{name: "swin", line: []string{"vision.py", "swin_base_patch4_window7_224", "64"}, needs: []string{"timm"}, share: .85, own: true},
	{name: "resnet", line: []string{"vision.py", "tv_resnet152", "128"}, needs: []string{"torchvision"}, share: .75},
	{name: "unet", line: []string{"unet.py"}, needs: []string{"diffusers"}, share: .75, own: true},
	{name: "t5", line: []string{"t5.py"}, needs: []string{"transformers"}, share: .7, own: true},
	{name: "vlm", line: []string{"vlm.py"}, needs: []string{"transformers"}, share: .7, own: true},
	{name: "detection", line: []string{"detection.py"}, needs: []string{"torchvision"}, share: .85},
}

// outcome is a script's last line.
type outcome struct {
	Losses     []float64 `json:"losses"`
	Seconds    float64   `json:"seconds"` // of the fastest step
	Peak       float64   `json:"peak"`    // bytes
	Statistics float64   `json:"statistics"`
	Steps      int       `json:"steps"`
	Each       []float64 `json:"each"` // seconds of each step
}

// TestInside trains jobs without any setting from out of memory to trained, and compares them with the
// untouched job and the framework's own switch. GPURUN_INSIDE selects some of them.
func TestInside(t *testing.T) {
	python, installed, devices := rescueMachine(t)
	chosen := strings.Fields(os.Getenv("GPURUN_INSIDE"))
	table := []string{"job | untouched GiB, s | own switch GiB, s, difference | gpurun GiB, s | attempts | largest difference of a loss (spread of three untouched runs) | what was turned"}
	for _, s := range insides {
		if len(chosen) > 0 && !slices.Contains(chosen, s.name) {
			continue
		}
		t.Run(s.name, func(t *testing.T) {
			if why := (scene{gpus: max(s.gpus, 1), needs: append(s.needs, "torch")}).lacks(installed, len(devices)); why != "" {
				t.Skip(why)
			}
			table = append(table, s.play(t, python))
		})
	}
	t.Log("\n" + strings.Join(table, "\n"))
}

// play runs one job in all ways, and returns its line of the table.
func (s inside) play(t *testing.T, python string) string {
	dir := copyOf(t, filepath.Join("testdata", "inside"))
	line := append([]string{python}, s.line...)
	if s.line[0] == "torchrun" {
		line = append([]string{python, "-m", "torch.distributed.run"}, s.line[1:]...)
	}
	untouched := make([]outcome, 3)
	untouched[0] = s.script(t, dir, line)
	var both sync.WaitGroup
	for i := range untouched[1:] {
		both.Go(func() { untouched[1+i] = s.script(t, dir, line) })
	}
	both.Wait()
	own, bound := "–", 0.0
	if s.own {
		o := s.script(t, dir, line, "OWN=1")
		own = fmt.Sprintf("%.2f, %.3f, %.2g", gib(o.Peak), o.Seconds, apart(o, untouched[0]))
		bound = apart(o, untouched[0])
	}
	if t.Failed() {
		return s.name
	}
	ceiling := fmt.Sprintf("%.0fMiB", untouched[0].Peak*s.share/(1<<20)+600) // the context and the allocator's own
	rescued, verdict := s.rescue(t, dir, line, ceiling, "--no-in-place")
	if len(verdict.Attempts) < 2 {
		t.Error("nothing was rescued")
	}
	difference, spread := apart(rescued, untouched[0]), max(apart(untouched[0], untouched[1]), apart(untouched[0], untouched[2]), apart(untouched[1], untouched[2]))
	// The framework's own switch has the same rounding effects in bf16.
	if !s.batch && difference > max(2*spread, 1.5*bound)+1e-6 {
		t.Errorf("losses differ by %g, those of untouched runs by %g:\n%v\n%v", difference, spread, rescued.Losses, untouched[0].Losses)
	}
	if untouched[0].Statistics != 0 && math.Abs(rescued.Statistics-untouched[0].Statistics) > 1e-3*math.Abs(untouched[0].Statistics) {
		t.Errorf("BatchNorm's statistics are %g, untouched %g", rescued.Statistics, untouched[0].Statistics)
	}
	if rescued.Peak >= untouched[0].Peak {
		t.Errorf("the peak is %.2f GiB, untouched %.2f", gib(rescued.Peak), gib(untouched[0].Peak))
	}
	var turned []string
	for _, a := range verdict.Attempts {
		if len(a.Changed) > 0 {
			turned = append(turned, a.Changed.String())
		}
	}
	return fmt.Sprintf("%s | %.2f, %.3f | %s | %.2f, %.3f | %d | %.2g (%.2g) | %s", s.name, gib(untouched[0].Peak), untouched[0].Seconds, own,
		gib(rescued.Peak), rescued.Seconds, len(verdict.Attempts), difference, spread, strings.Join(turned, "; "))
}

// script is one run without gpurun.
func (s inside) script(t *testing.T, dir string, line []string, env ...string) outcome {
	cmd := osexec.CommandContext(t.Context(), line[0], line[1:]...)
	cmd.Dir, cmd.Env = dir, slices.Concat(insideEnv(), s.env, env)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		t.Errorf("%v: %v\n%s", line, err, tail(errs.Bytes(), 30))
	}
	return resultIn(t, out.Bytes())
}

// rescue runs the line under gpurun.
func (s inside) rescue(t *testing.T, dir string, line []string, ceiling string, flags ...string) (outcome, launcher.Verdict) {
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	run := filepath.Join(t.TempDir(), "run")
	cmd := osexec.CommandContext(ctx, binary(t), append([]string{"--run-dir", run, "--device-memory", ceiling}, append(flags, line...)...)...)
	cmd.Dir, cmd.Env = dir, append(insideEnv(), s.env...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	var v launcher.Verdict
	text, readErr := os.ReadFile(filepath.Join(run, "verdict.json"))
	if readErr == nil {
		readErr = json.Unmarshal(text, &v)
	}
	if err != nil || readErr != nil {
		t.Fatalf("%v under %s: %v, %v\n%s", line, ceiling, err, readErr, tail(errs.Bytes(), 60))
	}
	t.Logf("%s", tail(errs.Bytes(), 20))
	if v.Outcome != strategy.Trained {
		t.Errorf("%s after %d attempts", v.Outcome, len(v.Attempts))
	}
	return resultIn(t, out.Bytes()), v
}

// insideEnv is the environment of the jobs, which import testdata/alone.
func insideEnv() []string {
	alone, err := filepath.Abs(filepath.Join("testdata", "alone"))
	if err != nil {
		panic(err) // the test's own directory is gone
	}
	return append(os.Environ(), "PYTHONPATH="+alone+string(os.PathListSeparator)+os.Getenv("PYTHONPATH"), "PYTHONUNBUFFERED=1", "HF_HUB_OFFLINE=1", "TOKENIZERS_PARALLELISM=false")
}

func resultIn(t *testing.T, out []byte) (o outcome) {
	at := bytes.LastIndex(out, []byte("RESULT "))
	if at < 0 {
		t.Errorf("the script says no result: %s", tail(out, 10))
		return o
	}
	if err := json.NewDecoder(bytes.NewReader(out[at+len("RESULT "):])).Decode(&o); err != nil {
		t.Errorf("read the script's result: %v", err)
	}
	return o
}

// apart returns the largest relative difference of two runs' losses.
func apart(a, b outcome) float64 {
	if len(a.Losses) != len(b.Losses) || len(a.Losses) == 0 {
		return math.Inf(1)
	}
	largest := 0.0
	for i := range a.Losses {
		largest = max(largest, math.Abs(a.Losses[i]-b.Losses[i])/math.Abs(b.Losses[i]))
	}
	return largest
}

func gib(bytes float64) float64 { return bytes / (1 << 30) }
