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

// declaredRungs are the remedies that remedy.go declares.
func declaredRemedies(t *testing.T) []Remedy {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), "remedy.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	var all []Remedy
	ast.Inspect(file, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok {
			return true
		}
		if of, ok := spec.Type.(*ast.Ident); ok && of.Name == "Remedy" {
			text, err := strconv.Unquote(spec.Values[0].(*ast.BasicLit).Value)
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, Remedy(text))
		}
		return false
	})
	if len(all) < 16 {
		t.Fatalf("remedy.go declares %d remedies", len(all))
	}
	return all
}

// TestEveryRungIsComplete: a declared remedy is walked, has its changes, and is in the manual.
func TestEveryRemedyIsComplete(t *testing.T) {
	manual, err := os.ReadFile(filepath.Join("..", "docs", "recovery.md"))
	if err != nil {
		t.Fatal(err)
	}
	walked := slices.Concat(DeviceRemedies, HostRemedies)
	for _, remedy := range declaredRemedies(t) {
		if n := len(slices.DeleteFunc(slices.Clone(walked), func(r Remedy) bool { return r != remedy })); n != 1 {
			t.Errorf("%s has %d rows in remedy.go, want one", remedy, n)
		}
		row := remedy.row()
		if row.changes == nil {
			t.Errorf("%s has no remedy: add it to its row (remedy.go)", remedy)
		}
		if len(row.turns) == 0 && remedy != RemedyWait {
			t.Errorf("%s turns no knob: add it to its row (remedy.go)", remedy)
		}
		if row.training == "" {
			t.Errorf("%s does not say what it does to the training: add it to its row (remedy.go)", remedy)
		}
		if !strings.Contains(string(manual), "`"+string(remedy)+"`") {
			t.Errorf("%s is not in docs/recovery.md", remedy)
		}
	}
}

// TestNewRemedyNeedsOneRow: a remedy and a knob that are each added by one row are offered by plan,
// weighed by the planner, walked in their order, and barred by the policy.
func TestNewRemedyNeedsOneRow(t *testing.T) {
	const madeUp, remedy = Knob("made_up"), Remedy("made-up")
	knobs, remedies := knobRows, remedyRows
	defer func() { setKnobs(knobs); setRemedies(remedies) }()
	setKnobs(append(slices.Clone(knobs), knobRow{madeUp, "made up", []Value{"off", "on"}, false, false}))
	at := slices.IndexFunc(remedies, func(r remedyRow) bool { return r.remedy == RemedyMicroBatch })
	setRemedies(slices.Insert(slices.Clone(remedies), at, remedyRow{
		remedy: remedy, turns: []Knob{madeUp}, training: Exact, onCPU: true, changes: stepRemedy(madeUp), idle: actsOnCalls,
	}))

	job := Job{Written: Plan{madeUp: "off"}, Knobs: map[Knob]Range{madeUp: {Values: madeUp.words()}}, DataParallel: 1}
	policy := Policy{MaxAttempts: 20, Numerics: MixedPrecision}
	ran := Attempt{Plan: job.Written, Diagnosis: Diagnosis{Cause: cause.CUDAOOM, Phase: cause.Backward, Fatal: true, Rank: 0}}

	offered := Survey(policy, job, job.Written, Inventory{})
	i := slices.IndexFunc(offered, func(o Offer) bool { return o.Remedy == remedy })
	if i < 0 || !offered[i].Available || offered[i].Training != Exact || offered[i].Changed.String() != "made up off→on" {
		t.Errorf("plan shows %+v", offered)
	}
	s := &situation{policy: policy, job: job}
	s.look([]Attempt{ran})
	if plans, _ := s.candidates(); len(plans) != 1 || plans[0][madeUp] != "on" {
		t.Errorf("the planner weighs %v, want the plan with made_up on", plans)
	}
	if d := Decide(policy, job, []Attempt{ran}, Inventory{}); d.Remedy != remedy || d.Next[madeUp] != "on" || d.Training != Exact {
		t.Errorf("decided %s %v (%s)", d.Remedy, d.Next, d.Reason)
	}
	policy.Never = []string{string(remedy)}
	if d := Decide(policy, job, []Attempt{ran}, Inventory{}); d.Relaunch {
		t.Errorf("decided %s %v although the policy bars it", d.Remedy, d.Next)
	}
	ran.Diagnosis.Phase = cause.Load
	policy.Never = nil
	if d := Decide(policy, job, []Attempt{ran}, Inventory{}); d.Relaunch {
		t.Errorf("decided %s %v where loading the model failed", d.Remedy, d.Next)
	}
}
