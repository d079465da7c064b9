package hook

import (
	"testing"
	"time"

	"github.com/gpurun/gpurun/strategy"
)

// The questions of a process are facts of their own: one when they begin, and one when they end.
func TestQuestionsAreFacts(t *testing.T) {
	const word = `{"type": "RuntimeError", "message": "x", "pid": 7, "time": 1732370000.5, "asking": `
	for text, want := range map[string]strategy.Seconds{word + `9.5}`: strategy.Seconds(9500 * time.Millisecond), word + `0}`: 0, word + `-4}`: 0, word + `1e300}`: strategy.Seconds(mostSeconds * time.Second)} {
		path := t.TempDir() + "/probe.json"
		if err := plant(path, []byte(text)); err != nil {
			t.Fatal(err)
		}
		if got, _, ok := asking(path); !ok || got != want {
			t.Errorf("%s: %s, %v", text, got, ok)
		}
	}
	path, facts := t.TempDir(), 0
	w := &watcher{emit: func(f strategy.Fact) {
		if strategy.As[*strategy.Asking](f) != nil {
			facts++
		}
	}, last: map[string]any{}}
	for n := range 4 * mostAsked {
		file := path + "/" + string(rune('a'+n%2))
		if n < 2 {
			if err := plant(file, []byte(word+string(rune('0'+9*(1-n%2)))+`}`)); err != nil {
				t.Fatal(err)
			}
		}
		w.lookAtQuestions(0, probeFile, file)
	}
	if facts != 1 { // one file began, and one never asked
		t.Errorf("%d facts", facts)
	}
}

// What only the job's own code knows is asked where memory has run out, and not before. It is asked also where less
// memory is left than a thread's stack takes.
func TestQuestionsNeedLittleMemory(t *testing.T) {
	python := needs(t)
	run := func(args ...string) (string, *strategy.ProcessReport) {
		r := newTrial(t)
		r.env = []string{"MALLOC_MMAP_THRESHOLD_=131072", "MALLOC_ARENA_MAX=1", "OMP_NUM_THREADS=1"}
		r.orders = Orders{Script: testdata(t, "asked.py"), Hooks: true, Questions: 60}
		out, err := r.job(t, append([]string{python, r.orders.Script}, args...)...).Output()
		if full := len(args) > 0; (err != nil) != full {
			t.Fatalf("%v: %s", err, out)
		}
		told, _ := r.told(t)
		return lastLine(string(out)), told
	}
	r := newTrial(t)
	r.bare = true
	alone := lastLine(r.train(t, python, testdata(t, "asked.py")))
	if healthy, told := run(); healthy != alone || told.Loss.Samples != 0 {
		t.Errorf("%s, and alone %s; %d samples", healthy, alone, told.Loss.Samples)
	}
	if _, told := run("full"); told.Loss.Samples != 64 || told.Loss.ModelRows != "yes" {
		t.Errorf("%+v", told.Loss)
	}
}
