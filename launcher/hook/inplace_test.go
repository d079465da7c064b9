package hook

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/gpurun/gpurun/strategy"
	"github.com/gpurun/gpurun/test/testenv"
)

// repeating is a trial of a script whose processes may repeat a step that ran out of memory.
func repeating(t *testing.T, script string, remedies ...strategy.Remedy) *trial {
	t.Helper()
	needs(t)
	r := newTrial(t)
	r.orders.Script, r.orders.Hooks = testdata(t, script), true
	r.orders.InPlace = &strategy.InPlaceOrders{Remedies: remedies}
	return r
}

// A job that does not fit under its ceiling trains to its end in one process, with the losses and
// weights that it has without a ceiling. Only batches as large as the smallest that failed are
// recomputed.
func TestStepIsRepeatedUnderCeiling(t *testing.T) {
	rows := "1,1,1,1,1,6,1,1,6,4,7"
	r := repeating(t, "loops.py")
	r.orders.InPlace = nil
	want := r.warmed(t, r.orders.Script, rows, "0")
	r = repeating(t, "loops.py", strategy.RemedyCheckpointing)
	if got := r.warmed(t, r.orders.Script, rows, "55"); got != want {
		t.Errorf("trained to %s, want %s", got, want)
	}
	said, _ := r.told(t)
	if len(said.InPlace) != 1 || said.InPlaceRefused != nil {
		t.Fatalf("repeated %+v, refused %+v", said.InPlace, said.InPlaceRefused)
	}
	one := said.InPlace[0]
	if one.Remedy != strategy.RemedyCheckpointing || one.Phase != "forward" || one.Step != 5 || one.Times != 1 || one.LastStep != 5 || one.Requested == 0 || one.Seconds <= 0 || one.Elements != 6<<17 || one.Longest != 1<<17 || one.At.IsZero() {
		t.Errorf("repeated %+v", one)
	}
	text, err := os.ReadFile(filepath.Join(r.dir, "rank0", memoryFile))
	if err != nil {
		t.Fatal(err)
	}
	armed := repeating(t, "loops.py", strategy.RemedyCheckpointing)
	armed.orders.InPlace.Armed = []strategy.ArmedRemedy{{Remedy: one.Remedy, Elements: one.Elements, Longest: one.Longest}}
	if got := armed.warmed(t, r.orders.Script, rows, "55"); got != want {
		t.Errorf("trained with what was learned to %s, want %s", got, want)
	}
	if said, _ := armed.told(t); len(said.InPlace) != 0 || said.InPlaceRefused != nil {
		t.Errorf("repeated %+v, refused %+v, with what was learned", said.InPlace, said.InPlaceRefused)
	}
	// The failed pass came to the ceiling, which is no measured peak: 0 is unknown. The repeat has what was held.
	if m, ok := parseMeasured(text); !ok || m.Failed != "" || m.Steps != 11 || m.Peak > m.Allowed-5*mib || one.Held < m.Allowed-one.Requested || one.Held > m.Allowed {
		t.Errorf("held %d, measured %s", one.Held, text)
	}
}

// Where the process could have far more memory than it needs, calls as large as earlier ones are not followed. A larger one
// is, and is repeated; of one that is not followed the report says why it was not repeated.
func TestCallsAreNotFollowedWhileMemoryIsAmple(t *testing.T) {
	rows := strings.Repeat("1,", 20)
	alone := repeating(t, "loops.py")
	alone.orders.InPlace = nil
	want := alone.warmed(t, alone.orders.Script, rows+"6,1,6,1", "0")
	r := repeating(t, "loops.py", strategy.RemedyCheckpointing)
	if got := r.warmed(t, r.orders.Script, rows+"6,1,6,1", "55", "18"); got != want {
		t.Errorf("trained to %s, want %s", got, want)
	}
	if said, _ := r.told(t); len(said.InPlace) != 1 || said.InPlace[0].Step != 20 || said.InPlaceRefused != nil {
		t.Errorf("repeated %+v, refused %+v", said.InPlace, said.InPlaceRefused)
	}

	r = repeating(t, "loops.py", strategy.RemedyCheckpointing)
	_, errs, code := testenv.Warmed(t, r.job(t, testenv.Python(t), r.orders.Script, "6,"+rows+"6,1", "45", "19"))
	said, _ := r.told(t)
	if code != 1 || !strings.Contains(errs, "DefaultCPUAllocator") || len(said.InPlace) != 0 || said.InPlaceRefused == nil || !strings.Contains(said.InPlaceRefused.Reason, "twice the memory") {
		t.Errorf("exit code %d, repeated %+v, refused %+v:\n%s", code, said.InPlace, said.InPlaceRefused, errs)
	}
}

// The allocator's snapshot of a failure that the process answered itself is kept until a later one fails.
func TestSnapshotOfRepeatedStepIsKept(t *testing.T) {
	r := repeating(t, "snapshots.py", strategy.RemedyCheckpointing)
	r.orders.Record = RecordFirst
	r.warmed(t, r.orders.Script, "repeated")
	said, _ := r.told(t)
	if len(said.InPlace) == 0 || said.InPlaceRefused != nil {
		t.Fatalf("repeated %+v, refused %+v", said.InPlace, said.InPlaceRefused)
	}
	times := 0
	for _, one := range said.InPlace {
		times += one.Times
	}
	s, found := NewestSnapshot(r.dir, 0, nil)
	if _, err := os.Stat(filepath.Join(r.dir, "rank0", "snapshot-1.json")); times != 2 || !found || s.Missing != "" || err == nil {
		t.Errorf("%d repeats; the snapshot %v, %+v; a second one: %v", times, found, s, err)
	}
}

// Under the frameworks, and under DistributedDataParallel with one rank that runs out of memory
// alone, losses and weights are those of the undisturbed run, bit by bit.
func TestFrameworksRepeatSteps(t *testing.T) {
	for way, module := range map[string]string{"trainer": "transformers", "lightning_": "lightning", "accelerate_": "accelerate", "ranks": ""} {
		t.Run(way, func(t *testing.T) {
			if module != "" {
				needs(t, module)
			}
			run := func(at string) ([]trained, []strategy.ProcessReport) {
				r := repeating(t, "repeated_frameworks.py", strategy.RemedyCheckpointing)
				words := []string{way}
				if at != "" {
					words = append(words, at)
				}
				out := r.warmed(t, r.orders.Script, words...)
				rank, own := r.told(t)
				if rank != nil {
					own = append(own, *rank)
				}
				return outcomes(t, out), own
			}
			want, _ := run("")
			calls := want[len(want)-1].Calls
			for _, at := range []string{
				fmt.Sprintf("forward:%d", calls["forward"]*2/3), fmt.Sprintf("forward:%d", calls["forward"]), fmt.Sprintf("backward:%d", calls["backward"]*2/3),
			} {
				got, told := run(at)
				if diff := cmp.Diff(want, got, cmpopts.IgnoreFields(trained{}, "Calls", "Hit")); diff != "" || got[len(got)-1].Hit != 1 {
					t.Errorf("%s: %s", at, diff)
				}
				var repeated []strategy.InPlace
				for _, p := range told {
					repeated = append(repeated, p.InPlace...)
					if p.InPlaceRefused != nil {
						t.Errorf("%s: refused %+v", at, p.InPlaceRefused)
					}
				}
				if len(repeated) != 1 || !strings.HasPrefix(at, repeated[0].Phase) {
					t.Errorf("%s: repeated %+v", at, repeated)
				}
			}
		})
	}
}

// trained is what a process of testdata/repeated_frameworks.py prints.
type trained struct {
	Losses, Weights []float64
	Calls           map[string]int // of what may run out of memory
	Hit             int            // how often it did
}

func outcomes(t *testing.T, out string) (all []trained) {
	t.Helper()
	for line := range strings.Lines(out) {
		var one trained
		if strings.HasPrefix(line, `{"losses"`) {
			if err := json.Unmarshal([]byte(line), &one); err != nil {
				t.Fatal(err)
			}
			all = append(all, one)
		}
	}
	if len(all) == 0 {
		t.Fatalf("printed %s", out)
	}
	return all
}

// Under a ceiling as few blocks are recomputed as fit with 3 % of it free, and the losses and weights are those without a
// ceiling. Without permission to tune all blocks stay recomputed.
func TestFewestBlocksAreRecomputed(t *testing.T) {
	rows := "1,6,6,6,6,6,6,6"
	alone := repeating(t, "loops.py")
	alone.orders.InPlace = nil
	want := alone.warmed(t, alone.orders.Script, rows, "0")
	for ceiling, tune := range map[string]bool{"48": true, "62": true, "63": false} {
		r := repeating(t, "loops.py", strategy.RemedyCheckpointing)
		r.orders.InPlace.Tune = tune
		if got := r.warmed(t, r.orders.Script, rows, ceiling, "0", "1"); got != want {
			t.Errorf("under %s MiB: trained to %s, want %s", ceiling, got, want)
		}
		said, _ := r.told(t)
		if len(said.InPlace) != 1 || said.InPlaceRefused != nil {
			t.Fatalf("under %s MiB: repeated %+v, refused %+v", ceiling, said.InPlace, said.InPlaceRefused)
		}
		one := said.InPlace[0]
		if !tune {
			if one.Trials != nil {
				t.Errorf("tried %+v without permission", one.Trials)
			}
			continue
		}
		text, err := os.ReadFile(filepath.Join(r.dir, "rank0", memoryFile))
		if err != nil {
			t.Fatal(err)
		}
		m, ok := parseMeasured(text)
		if !ok {
			t.Fatalf("measured %s", text)
		}
		room, block := m.Allowed*97/100, int64(9*mib) // a block saves four tensors of its batch, and its input in any case
		kept := one.Kept()
		if kept == nil || one.Trials[0].Recomputed != 6 || kept.Blocks != 6 || kept.Recomputed == 6 {
			t.Errorf("under %s MiB: tried %+v", ceiling, one.Trials)
			continue
		}
		if kept.Peak > room+mib || kept.Recomputed > 0 && kept.Peak+block < room-mib {
			t.Errorf("under %s MiB: %d blocks recomputed with a peak of %d, where %d may be used; tried %+v", ceiling, kept.Recomputed, kept.Peak, room, one.Trials)
		}
	}
}

// A remedy that is only tried has no sizes yet. What the process reports of it is JSON that Go reads.
func TestRepeatOfNoSizeIsReported(t *testing.T) {
	const script = `
import json
from inside.base import process
from inside.observe import repeats
process.start["folder"] = "."
repeats.entry("backward", "split", 0.5, None, float("inf"), float("inf"), 4)
print(json.dumps({"pid": 7, "in_place": repeats.entries}))`
	cmd := exec.Command(needs(t), "-B", "-c", script)
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	said, _, ok := parseSaid(out)
	if !ok || len(said.InPlace) != 1 || said.InPlace[0].Parts != 4 || said.InPlace[0].Elements != 0 || said.InPlace[0].Longest != 0 {
		t.Errorf("read %t, %+v of %s", ok, said.InPlace, out)
	}
}
