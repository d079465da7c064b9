package main

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/testscript"

	"github.com/gpurun/gpurun/launcher/diagnose"
	"github.com/gpurun/gpurun/launcher/journal"
	"github.com/gpurun/gpurun/strategy"
	"github.com/gpurun/gpurun/strategy/cause"
)

// savedOutput compares the diagnoses of the scripts' runs with those of their saved output alone.
type savedOutput struct{ scripts, compared atomic.Int64 }

// imitations are scripts whose output looks as if memory had run out. Only the ends of their
// processes show that it had not.
var imitations = map[string]string{
	"hostile-text": "prints the traceback of an out-of-memory error, and crashes or exits silently",
	"signal-pause": "prints an out-of-memory error, and no numbered step after it",
}

// compare diagnoses the saved output of all attempts below a script's folder, without journals:
// the ranks' folders, and all output in one file. The diagnosis is that of the run where the
// output holds it; elsewhere it is none, and says what would show more.
func (s *savedOutput) compare(env *testscript.Env) {
	t := env.T().(interface {
		Errorf(format string, args ...any)
		Logf(format string, args ...any)
	})
	s.scripts.Add(1)
	script := strings.TrimPrefix(filepath.Base(env.WorkDir), "script-")
	_ = filepath.WalkDir(env.WorkDir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.Name() != journal.File || journal.IsNode(filepath.Dir(path)) {
			return nil
		}
		events, err := journal.Read(filepath.Dir(path))
		if err != nil {
			return nil // the script is about a broken journal
		}
		for _, a := range journal.RunOf(events).Attempts {
			if a.Phase < journal.Ended || a.Evidence.Unstarted != nil {
				continue
			}
			folder := filepath.Join(filepath.Dir(path), fmt.Sprintf("attempt-%d", a.N))
			for _, form := range []string{"folders", "one file"} {
				if alone, ok := diagnoseSaved(folder, form); ok {
					s.compared.Add(1)
					if diff := differs(script, form, a.Evidence, alone); diff != "" {
						t.Errorf("%s, %s: the saved output alone has another diagnosis than the run: %s\nadvice: %s", folder, form, diff, alone.Advice)
					}
				}
			}
		}
		return nil
	})
}

// diagnoseSaved diagnoses an attempt by its ranks' output; false if there is none.
func diagnoseSaved(folder, form string) (diagnose.FileDiagnosis, bool) {
	name, text := folder, strings.Builder{}
	for _, stream := range []string{"stdout.log", "stderr.log"} {
		logs, _ := filepath.Glob(filepath.Join(folder, "rank*", stream))
		for _, log := range logs {
			content, err := os.ReadFile(log)
			if err != nil {
				return diagnose.FileDiagnosis{}, false
			}
			text.Write(content)
		}
	}
	if form == "one file" {
		name = "-"
	}
	in, err := diagnose.Collector{Attempt: -1, Stdin: strings.NewReader(text.String())}.Collect(name)
	return diagnose.Diagnose(in), err == nil
}

// differs compares a run's diagnosis with that of its saved output. It is empty if they agree, or
// for a reason that is given here.
func differs(script, form string, ev strategy.Evidence, alone diagnose.FileDiagnosis) string {
	type outcome struct {
		Cause   cause.Code
		Phase   cause.Phase
		Figures cause.Figures
	}
	live := strategy.Diagnose(ev)
	diff := cmp.Diff(outcome{live.Cause, live.Phase, live.Figures}, outcome{alone.Cause, alone.Phase, alone.Figures})
	switch {
	case diff == "":
	case live.Cause == cause.None && ev.StopSignal != 0 && alone.Cause == cause.Preempted:
		return "" // that the user stopped it is in the journal only
	case alone.Cause == cause.None && alone.Advice != "" && !holds(form, ev, live):
		return "" // an exit code or a signal, of which the output has no word
	case imitations[script] != "" && alone.Cause == cause.CUDAOOM:
		return ""
	}
	return diff
}

// holds reports whether the output in this form has the strongest fact of a diagnosis.
func holds(form string, ev strategy.Evidence, d strategy.Diagnosis) bool {
	sources := []string{"stdout", "stderr"}
	if form == "folders" {
		sources = append(sources, "error.json")
	}
	facts := d.Facts(&ev)
	return len(facts) > 0 && facts[0].Finding() != nil && slices.Contains(sources, facts[0].Source) &&
		!facts[0].Finding().Says(cause.SaysComplaint) // a failure only together with an exit code
}

// check wants a number of comparisons if all scripts ran.
func (s *savedOutput) check(t *testing.T, scripts int) {
	const least = 300
	if n := s.compared.Load(); int(s.scripts.Load()) == scripts && n < least {
		t.Errorf("%d diagnoses were compared, want %d", n, least)
	}
}
