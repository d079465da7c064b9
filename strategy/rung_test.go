package strategy

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/gpurun/gpurun/strategy/cause"
)

// declaredRungs are the rungs that rung.go declares.
func declaredRungs(t *testing.T) []Rung {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), "rung.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	var all []Rung
	ast.Inspect(file, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok {
			return true
		}
		if of, ok := spec.Type.(*ast.Ident); ok && of.Name == "Rung" {
			text, err := strconv.Unquote(spec.Values[0].(*ast.BasicLit).Value)
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, Rung(text))
		}
		return false
	})
	if len(all) < 16 {
		t.Fatalf("rung.go declares %d rungs", len(all))
	}
	return all
}

// TestEveryRungIsComplete: a declared rung is walked, has its changes, and is in the manual.
func TestEveryRungIsComplete(t *testing.T) {
	manual, err := os.ReadFile(filepath.Join("..", "docs", "recovery.md"))
	if err != nil {
		t.Fatal(err)
	}
	walked := slices.Concat(DeviceRungs, HostRungs)
	for _, rung := range declaredRungs(t) {
		if n := len(slices.DeleteFunc(slices.Clone(walked), func(r Rung) bool { return r != rung })); n != 1 {
			t.Errorf("%s has %d rows in rung.go, want one", rung, n)
		}
		row := rung.row()
		if row.remedy == nil {
			t.Errorf("%s has no remedy: add it to its row (rung.go)", rung)
		}
		if len(row.turns) == 0 && rung != RungWait {
			t.Errorf("%s turns no knob: add it to its row (rung.go)", rung)
		}
		if row.training == "" {
			t.Errorf("%s does not say what it does to the training: add it to its row (rung.go)", rung)
		}
		if !strings.Contains(string(manual), "`"+string(rung)+"`") {
			t.Errorf("%s is not in docs/recovery.md", rung)
		}
	}
}

// TestNewRungNeedsOneRow: a rung and a knob that are each added by one row are offered by plan,
// weighed by the planner, walked in their order, and barred by the policy.
func TestNewRungNeedsOneRow(t *testing.T) {
	const madeUp, rung = Knob("made_up"), Rung("made-up")
	knobs, rungs := knobRows, rungRows
	defer func() { setKnobs(knobs); setRungs(rungs) }()
	setKnobs(append(slices.Clone(knobs), knobRow{madeUp, "made up", []Value{"off", "on"}, false, false}))
	at := slices.IndexFunc(rungs, func(r rungRow) bool { return r.rung == RungMicroBatch })
	setRungs(slices.Insert(slices.Clone(rungs), at, rungRow{
		rung: rung, turns: []Knob{madeUp}, training: Exact, onCPU: true, remedy: stepRemedy(madeUp), idle: actsOnCalls,
	}))

	job := Job{Written: Plan{madeUp: "off"}, Knobs: map[Knob]Range{madeUp: {Values: madeUp.words()}}, DataParallel: 1}
	policy := Policy{MaxAttempts: 20, Numerics: MixedPrecision}
	ran := Attempt{Plan: job.Written, Diagnosis: Diagnosis{Cause: cause.CUDAOOM, Phase: cause.Backward, Fatal: true, Rank: 0}}

	offered := Survey(policy, job, job.Written, Inventory{})
	i := slices.IndexFunc(offered, func(o Offer) bool { return o.Rung == rung })
	if i < 0 || !offered[i].Available || offered[i].Training != Exact || offered[i].Changed.String() != "made up off→on" {
		t.Errorf("plan shows %+v", offered)
	}
	s := &situation{policy: policy, job: job}
	s.look([]Attempt{ran})
	if plans, _ := s.candidates(); len(plans) != 1 || plans[0][madeUp] != "on" {
		t.Errorf("the planner weighs %v, want the plan with made_up on", plans)
	}
	if d := Decide(policy, job, []Attempt{ran}, Inventory{}); d.Rung != rung || d.Next[madeUp] != "on" || d.Training != Exact {
		t.Errorf("decided %s %v (%s)", d.Rung, d.Next, d.Reason)
	}
	policy.Never = []string{string(rung)}
	if d := Decide(policy, job, []Attempt{ran}, Inventory{}); d.Relaunch {
		t.Errorf("decided %s %v although the policy bars it", d.Rung, d.Next)
	}
	ran.Diagnosis.Phase = cause.Load
	policy.Never = nil
	if d := Decide(policy, job, []Attempt{ran}, Inventory{}); d.Relaunch {
		t.Errorf("decided %s %v where loading the model failed", d.Rung, d.Next)
	}
}
