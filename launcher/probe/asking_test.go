package probe

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
		if f.Asking != nil {
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
