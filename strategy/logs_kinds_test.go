package strategy

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"

	"github.com/gpurun/gpurun/strategy/cause"
)

// TestKindsOfLogs reads testdata/logs: logs of one kind each, in many forms. A log's heading is
//
//	what it is: cause [fatal] [phase] [N starts]: words of the sentence
//
// Without "fatal" nothing fatal may be found, without a phase none, without a number one start.
func TestKindsOfLogs(t *testing.T) {
	files, err := filepath.Glob(filepath.Join("testdata", "logs", "*.txtar"))
	if err != nil || len(files) == 0 {
		t.Fatal("no logs", err)
	}
	for _, name := range files {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, log := range txtar.Parse(text).Files {
			what, rest, _ := strings.Cut(log.Name, ": ")
			labels, sentence, _ := strings.Cut(rest, ": ")
			t.Run(strings.TrimSuffix(filepath.Base(name), ".txtar")+"/"+what, func(t *testing.T) {
				checkKind(t, strings.Fields(labels), sentence, strings.TrimSuffix(string(log.Data), "\n"))
			})
		}
	}
}

func checkKind(t *testing.T, labels []string, sentence, log string) {
	want := struct {
		code   cause.Code
		fatal  bool
		phase  cause.Phase
		starts string
	}{cause.Code(labels[0]), false, cause.NoPhase, "1"}
	for i, l := range labels[1:] {
		switch {
		case l == "fatal":
			want.fatal = true
		case l == "starts":
			want.starts = labels[i]
		case l[0] > '9':
			want.phase = cause.Phase(l)
		}
	}
	ev := EvidenceFromLog(cause.Scan("log", log+"\n"), nil)
	d := Diagnose(ev)
	if d.Cause != want.code || d.Fatal != want.fatal || d.Phase != want.phase {
		t.Errorf("cause %s, fatal %v, phase %s; want %s, %v, %s: %q", d.Cause, d.Fatal, d.Phase, want.code, want.fatal, want.phase, d.Sentence())
	}
	if !strings.Contains(d.Sentence()+"; "+d.Advice, sentence) {
		t.Errorf("%q, want %q", d.Sentence()+"; "+d.Advice, sentence)
	}
	if n := max(len(Starts(ev)), 1); Number(n) != Value(want.starts) {
		t.Errorf("%d starts, want %s", n, want.starts)
	}
}
