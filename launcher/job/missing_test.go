package job

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/gpurun/gpurun/launcher/commandline"
	"github.com/gpurun/gpurun/strategy"
)

// put writes a file, in folders that it makes.
func put(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o755); err != nil {
		t.Fatal(err)
	}
}

// libaio counts where DeepSpeed can compile and link with it: the library alone, as
// a program needs it to run, is not enough.
func TestLibaioIsWhereItCanBeLinked(t *testing.T) {
	prefix := t.TempDir()
	python := filepath.Join(prefix, "bin", "python3")
	for _, folder := range []string{"bin", "lib", "include", "other"} {
		if err := os.Mkdir(filepath.Join(prefix, folder), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	var env commandline.Environ
	if HasLibaio(python, env) {
		t.Skip("this machine has libaio-dev")
	}
	put(t, filepath.Join(prefix, "lib", "libaio.so.1"), "")
	put(t, filepath.Join(prefix, "include", "libaio.h"), "")
	if HasLibaio(python, env) {
		t.Error("libaio.so.1 cannot be linked with")
	}
	put(t, filepath.Join(prefix, "other", "libaio.so"), "")
	env = commandline.Environ{"LDFLAGS": "-O2 -L" + filepath.Join(prefix, "other")}
	if !HasLibaio(python, env) {
		t.Error("LDFLAGS names the folder")
	}
	env = nil
	put(t, filepath.Join(prefix, "lib", "libaio.so"), "")
	if !HasLibaio(python, env) {
		t.Error("the interpreter's own environment has it")
	}
}

// A fused loss needs its package. Where the interpreter's packages are not known, nothing is missing.
func TestFusedLossNeedsItsPackage(t *testing.T) {
	for _, test := range []struct {
		packages map[string]string
		missing  bool
	}{
		{nil, false},
		{map[string]string{"transformers": "5.23.0"}, true},
		{map[string]string{"liger-kernel": "0.6.4"}, false},
	} {
		var p Prepared
		p.command.Packages = test.packages
		if got := p.Missing()[strategy.RemedyFusedLoss]; (got != "") != test.missing {
			t.Errorf("%v: %q", test.packages, got)
		}
	}
}

// A job whose framework would offload through DeepSpeed, which is not installed, keeps its optimizer's states in host
// memory by the hook.
func TestStatesLeaveByTheHookWithoutDeepSpeed(t *testing.T) {
	for name, test := range map[string]struct {
		packages map[string]string
		plan     strategy.Plan
		by       strategy.By
	}{
		"not installed":           {map[string]string{"transformers": "5.23.0"}, strategy.Plan{strategy.OffloadOptimizer: "none"}, strategy.ByHook},
		"installed":               {map[string]string{"deepspeed": "0.19.8"}, strategy.Plan{strategy.OffloadOptimizer: "none"}, ""},
		"not known":               {nil, strategy.Plan{strategy.OffloadOptimizer: "none"}, ""},
		"the job offloads itself": {map[string]string{}, strategy.Plan{strategy.OffloadOptimizer: "cpu"}, ""},
	} {
		var r Resolved
		r.Job.Launch.Probe, r.Job.Launch.Hooks, r.Job.Argv, r.Job.Kind = true, true, []string{"bash", "run.sh"}, Program
		r.recipe.Rules, r.command.Packages = []string{"deepspeed-config"}, test.packages
		knobs := map[strategy.Knob]strategy.Range{strategy.OffloadOptimizer: {Values: []strategy.Value{"none", "cpu"}}}
		r.inside(test.plan, knobs)
		if got := knobs[strategy.OffloadOptimizer].By; got != test.by {
			t.Errorf("%s: by %q", name, got)
		}
		if _, set := test.plan[strategy.OffloadOptimizer]; set == (test.by == strategy.ByHook) {
			t.Errorf("%s: the plan has it: %t", name, set)
		}
	}
}
