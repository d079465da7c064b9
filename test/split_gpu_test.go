package test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	osexec "os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// Parts of the batch save memory on a GPU, and cost a forward: measured next to recomputed blocks,
// for a GPT, a contrastive pair of towers, and a net without repeated blocks. The losses are those
// of the job as written.
func TestPartsOfTheBatchOnAGPU(t *testing.T) {
	python, installed, devices := rescueMachine(t)
	if why := (scene{gpus: 1, needs: []string{"torch"}}).lacks(installed, len(devices)); why != "" {
		t.Skip(why)
	}
	hook, err := filepath.Abs("../launcher/hook")
	if err != nil {
		t.Fatal(err)
	}
	type row struct {
		Turn    map[string]any
		Refused map[string]string
		Failed  string
		Losses  []float64
		Seconds float64
		GiB     float64
	}
	table := []string{"job | changed | GiB | seconds a step | largest difference of a loss"}
	for _, job := range []string{"gpt", "towers", "convnet"} {
		out, err := osexec.Command(python, "testdata/split/measure.py", hook, job).Output()
		if err != nil {
			t.Errorf("%s: %v", job, err)
		}
		var whole row
		for line := range bytes.Lines(out) {
			var r row
			if json.Unmarshal(line, &r) != nil {
				continue
			}
			if len(r.Turn) == 0 {
				whole = r
			}
			apart := 0.
			for i := range min(len(r.Losses), len(whole.Losses)) {
				apart = math.Max(apart, math.Abs(r.Losses[i]-whole.Losses[i]))
			}
			table = append(table, fmt.Sprintf("%s | %v %s | %.2f | %.4f | %.5f", job, r.Turn, r.Failed, r.GiB, r.Seconds, apart))
			parts, split := r.Turn["forward_parts"]
			switch {
			case !split:
			case r.Failed != "" || r.Refused["forward_parts"] != "":
				t.Errorf("%s in %v parts: %s%s", job, parts, r.Failed, r.Refused["forward_parts"])
			case whole.Failed == "" && r.GiB >= whole.GiB:
				t.Errorf("%s in %v parts needs %.2f GiB, and the whole %.2f", job, parts, r.GiB, whole.GiB)
			case apart > .01*math.Abs(whole.Losses[0]):
				t.Errorf("%s in %v parts: losses %v, and the whole %v", job, parts, r.Losses, whole.Losses)
			}
		}
	}
	t.Log("\n" + strings.Join(table, "\n"))
}
