package strategy

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gpurun/gpurun/strategy/cause"
)

var updateAnswers = flag.Bool("update-answers", false, "write testdata/corpus/answers.tsv")

// answersFile holds the answer to every log of both corpora: a better rule for one kind of log must
// not change the answer to another one unseen.
var answersFile = filepath.Join("testdata", "corpus", "answers.tsv")

// answer is what gpurun diagnose says about a log, without the log's own text: cause, whether it is
// fatal, phase, and the line that it quotes first.
func answer(l labelled) string {
	ev := EvidenceFromLog(cause.Scan("log", l.Log), l.ExitCode)
	d := Diagnose(ev)
	line := 0
	for _, f := range d.Facts(&ev) {
		if f.Finding() != nil && (line == 0 || f.Finding().Text == d.Error) {
			line = f.Finding().Line
		}
		if f.Finding() != nil && f.Finding().Text == d.Error {
			break
		}
	}
	return fmt.Sprintf("%s\t%v\t%s\t%d", d.Cause, d.Fatal, d.Phase, line)
}

// TestCorpusAnswers compares the answer to each log with the one that was kept, and names those that
// changed. "make corpus-report ANSWERS=keep" keeps the new ones.
func TestCorpusAnswers(t *testing.T) {
	kept := map[string]string{}
	text, err := os.ReadFile(answersFile)
	if err != nil && !*updateAnswers {
		t.Fatal(err)
	}
	var order []string
	for line := range strings.Lines(string(text)) {
		if id, words, ok := strings.Cut(strings.TrimSuffix(line, "\n"), "\t"); ok {
			kept[id] = words
			order = append(order, id)
		}
	}
	logs := readCorpus(t, filepath.Join("testdata", "corpus", "*.jsonl"))
	logs = append(logs, readCorpus(t, filepath.Join("..", "..", "shared", "corpus", "failures.jsonl"))...)
	changed := 0
	for _, l := range logs {
		now := answer(l)
		before, known := kept[l.ID]
		if !known {
			order = append(order, l.ID)
		}
		kept[l.ID] = now
		switch {
		case before == now:
		case !known:
			t.Logf("%s is new: %s", l.ID, strings.ReplaceAll(now, "\t", " "))
			changed++
		default:
			t.Logf("%s was %s, and is %s (labelled %s %v %s)", l.ID, strings.ReplaceAll(before, "\t", " "), strings.ReplaceAll(now, "\t", " "), l.Cause, l.Fatal, l.Phase)
			changed++
		}
	}
	if !*updateAnswers {
		if changed > 0 {
			t.Errorf("%d answers changed: if they are better, keep them with make corpus-report ANSWERS=keep", changed)
		}
		return
	}
	var b strings.Builder
	for _, id := range order {
		fmt.Fprintf(&b, "%s\t%s\n", id, kept[id])
	}
	if err := os.WriteFile(answersFile, []byte(b.String()), 0o644); err != nil {
		t.Fatal(err)
	}
}
