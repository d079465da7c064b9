package show

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/gpurun/gpurun/launcher"

	"github.com/gpurun/gpurun/launcher/mask"
	"github.com/gpurun/gpurun/strategy"
)

// The report is there before the end of the run is shown, has the hints that the summary
// gives, without secrets, and keeps them when it is written again.
func TestAtEnd(t *testing.T) {
	dir := copied(t, "lightning")
	var shown []string
	var warned bytes.Buffer
	words := []string{"train.py", "--api-key", "verysecretvalue1", "--checkpointing"}
	people := &People{
		W: &warned, Dir: dir, Mask: mask.New(words, nil), Propose: func(strategy.Plan, strategy.Arguments, int) (strategy.Proposal, error) {
			return strategy.Proposal{Words: words}, nil
		},
	}
	show := ReportAtEnd(func(e launcher.Event) {
		_, err := os.Stat(filepath.Join(dir, ReportFile))
		shown = append(shown, strings.ToLower(errorOr(err, "there")))
	}, people, "v9")
	show(launcher.Noticed{Text: "x"})
	show(launcher.Finished{})
	if len(shown) != 2 || shown[0] == "there" || shown[1] != "there" || people.Report != filepath.Join(dir, ReportFile) || warned.Len() > 0 {
		t.Fatalf("shown %q, report %q, warned %q", shown, people.Report, warned.String())
	}
	first, err := os.ReadFile(people.Report)
	if err != nil {
		t.Fatal(err)
	}
	for _, page := range []string{string(first), pageOf(t, dir)} {
		if !strings.Contains(page, `<code class="paste">train.py --api-key &#39;***&#39; --checkpointing</code>`) || strings.Contains(page, "verysecretvalue1") {
			t.Error("the words to start the plan with are not there, or not masked")
		}
	}
	info, err := os.Stat(people.Report)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info, err)
	}
}

func errorOr(err error, word string) string {
	if err != nil {
		return err.Error()
	}
	return word
}

// A report that cannot be written is one warning; the run's end is shown anyway.
func TestAtEndWithoutAReport(t *testing.T) {
	broken := func(strategy.Plan, strategy.Arguments, int) (strategy.Proposal, error) { panic("no words") }
	for name, e := range map[string]People{
		"no run directory": {Dir: filepath.Join(t.TempDir(), "gone")},
		"a bug":            {Dir: copied(t, "lightning"), Propose: broken},
	} {
		var warned bytes.Buffer
		ends := 0
		e.W = &warned
		ReportAtEnd(func(launcher.Event) { ends++ }, &e, "v9")(launcher.Finished{})
		if text := warned.String(); e.Report != "" || ends != 1 || strings.Count(text, "gpurun: warning: the report was not written: ") != 1 || strings.Count(text, "\n") != 1 {
			t.Errorf("%s: shown %d times, warned %q", name, ends, text)
		}
	}
}

// A report elsewhere leads back to the files of the run; one on stdout names them.
func TestLinksOfAReportElsewhere(t *testing.T) {
	at := t.TempDir()
	run := filepath.Join(at, ".gpurun", "job", "r")
	if err := errors.Join(os.MkdirAll(filepath.Dir(run), 0o700), os.CopyFS(run, os.DirFS("testdata/lightning"))); err != nil {
		t.Fatal(err)
	}
	path, err := MakeReport(run, filepath.Join(at, "x.html"), "v9", nil)
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(path)
	if err != nil || !strings.Contains(string(text), `<a href=".gpurun/job/r/attempt-1/diff.patch">diff.patch</a>`) {
		t.Errorf("no link, %v", err)
	}
	var out bytes.Buffer
	if path, err := MakeReport(run, "-", "v9", &out); err != nil || path != "" || !strings.Contains(out.String(), "journal.jsonl") || strings.Contains(out.String(), `href="journal`) {
		t.Errorf("%q, %v", path, err)
	}
}

// A report that root writes into a user's run directory stays the user's.
func TestReportOfRootBelongsToTheOwnerOfTheRun(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can write into the folder of another user")
	}
	run, above := copied(t, "lightning"), t.TempDir()
	if err := os.Chown(run, 4242, 4243); err != nil {
		t.Fatal(err)
	}
	for to, want := range map[string][2]uint32{"": {4242, 4243}, filepath.Join(above, "x.html"): {0, uint32(os.Getegid())}} {
		path, err := MakeReport(run, to, "v9", nil)
		if err != nil {
			t.Fatal(err)
		}
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		stat := info.Sys().(*syscall.Stat_t)
		if got := [2]uint32{stat.Uid, stat.Gid}; got != want || info.Mode().Perm() != 0o600 {
			t.Errorf("%s belongs to %v, want %v, mode %v", path, got, want, info.Mode())
		}
	}
}
