package hook

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gpurun/gpurun/strategy"
	"github.com/gpurun/gpurun/test/testenv"
)

// smallLogits is a trial of vocabulary.py in which logits of 64 MiB are large: real ones take seconds.
func smallLogits(t *testing.T) *trial {
	t.Helper()
	r := repeating(t, "vocabulary.py")
	r.orders.InPlace = nil
	text, err := os.ReadFile(filepath.Join("inside", "remedies", "losspart.py"))
	testenv.Check(t, err)
	part := string(text)
	for large, small := range map[string]string{"LEAST, SHARE = 256 << 20": "LEAST, SHARE = 64 << 20", "WORK, MOST = 256 << 20, 1 << 30": "WORK, MOST = 64 << 20, 256 << 20"} {
		if !strings.Contains(part, large) {
			t.Fatalf("losspart.py has no %q", large)
		}
		part = strings.ReplaceAll(part, large, small)
	}
	r.parts = map[string]string{"losspart": part}
	return r
}

// A cross entropy that has too little memory under a ceiling is computed in parts of its rows: by an
// order of the plan, or in place. Without both the job runs out of memory.
func TestLargeCrossEntropyFitsUnderCeiling(t *testing.T) {
	run := func(ceiling string, change func(*Orders)) (string, *strategy.ProcessReport, bool) {
		r := smallLogits(t)
		change(&r.orders)
		out, _, code := testenv.Warmed(t, r.job(t, testenv.Python(t), r.orders.Script, ceiling))
		said, _ := r.told(t)
		return out, said, code == 0
	}
	want, said, trained := run("0", func(*Orders) {})
	if !trained || said.Refused[strategy.LossParts] != "" {
		t.Fatalf("without a ceiling it trains: %v; refused: %s", trained, said.Refused[strategy.LossParts])
	}
	if out, _, trained := run("180", func(*Orders) {}); trained {
		t.Fatalf("it fits: %s", out)
	}
	planned, said, _ := run("180", func(o *Orders) { o.Turn = strategy.Plan{strategy.LossParts: "on"} })
	if planned != want || said.Applied[strategy.LossParts] != [2]strategy.Value{"off", "on"} || said.Settings[strategy.LossParts] != "on" {
		t.Errorf("planned: %s, want %s; applied %v, settings %v", planned, want, said.Applied, said.Settings)
	}
	inPlace, said, _ := run("180", func(o *Orders) {
		o.InPlace = &strategy.InPlaceOrders{Remedies: []strategy.Remedy{strategy.RemedyLossParts}, BeforeLoss: true}
	})
	if inPlace != want || len(said.InPlace) != 1 {
		t.Fatalf("in place: %s, want %s; %+v", inPlace, want, said.InPlace)
	}
	if one := said.InPlace[0]; one.Remedy != strategy.RemedyLossParts || one.Phase != "loss" || one.Step != 0 || one.Times != 1 || one.Elements != 1024*16384 {
		t.Errorf("in place: %+v", one)
	}
}

// An evaluation before the first step computes its loss in parts, where memory would run out, in the same attempt.
func TestLossOfFirstEvaluationFitsUnderCeiling(t *testing.T) {
	run := func(ceiling string, remedies ...strategy.Remedy) (string, *strategy.ProcessReport) {
		r := smallLogits(t)
		r.orders.InPlace = &strategy.InPlaceOrders{Remedies: remedies}
		out, errs, code := testenv.Warmed(t, r.job(t, testenv.Python(t), r.orders.Script, ceiling, "evaluates"))
		if code != 0 {
			return errs, nil
		}
		said, _ := r.told(t)
		return out, said
	}
	want, said := run("0", strategy.RemedyLossParts)
	if said == nil || len(said.InPlace) != 0 {
		t.Fatalf("without a ceiling: %s, %+v", want, said)
	}
	if out, said := run("104"); said != nil {
		t.Fatalf("it fits: %s", out)
	}
	got, said := run("104", strategy.RemedyLossParts)
	if got != want || said == nil || len(said.InPlace) != 1 {
		t.Fatalf("%s, want %s; %+v", got, want, said)
	}
	if one := said.InPlace[0]; one.Remedy != strategy.RemedyLossParts || one.Phase != "loss" || one.Step != 0 || one.Elements != 1024*16384 {
		t.Errorf("in place: %+v", one)
	}
}

// What a cross entropy in parts costs beside PyTorch's own, as a ratio of times of loss and backward pass: where its gradient
// is made ahead, and where each step has another gradient of the loss.
func BenchmarkLossInParts(b *testing.B) {
	python := needs(b)
	for b.Loop() {
		out, err := exec.Command(python, "-B", testdata(b, "loss_cost.py"), ".").Output()
		var seconds struct{ Plain, Parts, Again float64 }
		if err == nil {
			err = json.Unmarshal(out, &seconds)
		}
		if err != nil {
			b.Fatalf("%v: %s", err, out)
		}
		b.ReportMetric(seconds.Parts/seconds.Plain, "parts/plain")
		b.ReportMetric(seconds.Again/seconds.Plain, "again/plain")
	}
}
