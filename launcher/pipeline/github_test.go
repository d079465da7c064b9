package pipeline

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/gpurun/gpurun/launcher"
	_ "github.com/gpurun/gpurun/launcher/testseed"
	"github.com/gpurun/gpurun/strategy"
)

// toGitHub reports a run to GitHub, and returns what stdout and the summary have.
func toGitHub(t *testing.T, summary string, events []launcher.Event) (out, added, warned string) {
	t.Helper()
	var stdout, stderr strings.Builder
	env := map[string]string{"GITHUB_ACTIONS": "true", "GITHUB_STEP_SUMMARY": summary, "GITHUB_WORKSPACE": "/ci/repo"}
	p, err := Open(Setup{Job: "gpt", Workdir: "/ci/repo/src", Getenv: func(name string) string { return env[name] }, Stdout: &stdout, Stderr: &stderr})
	if err != nil {
		t.Fatal(err)
	}
	show := p.Events(func(launcher.Event) {})
	for _, e := range events {
		show(e)
	}
	p.End(nil)
	text, _ := os.ReadFile(summary)
	return stdout.String(), string(text), stderr.String()
}

func TestAnnotations(t *testing.T) {
	summary := filepath.Join(t.TempDir(), "summary")
	if err := os.WriteFile(summary, []byte("before\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	out, added, warned := toGitHub(t, summary, over(attempt(0, frames, oom, smaller), attempt(1, nil, well, stopped(strategy.Trained, 0, "attempt 1: trained"))))
	want := `
::warning title=gpurun%3A gpt%2C attempt 0,file=src/train.py,line=10::attempt 0: CUDA out of memory → micro batch 8→4
::notice title=gpurun%3A gpt%2C run::attempt 1: trained
`
	if out != want || warned != "" {
		t.Errorf("%s%s", out, warned)
	}
	for _, part := range []string{"before\n\n### gpurun: gpt: trained\n", "| 0 | 1m0s | cuda\\-oom | attempt 0\\: CUDA out of memory → micro batch 8→4 |\n", "| 1 | 1m0s | none |", "\nrun: night\n"} {
		if !strings.Contains(added, part) {
			t.Errorf("the summary has no %q:\n%s", part, added)
		}
	}
	hostile := []string{"Traceback (most recent call last):", `  File "train.py", line 3, in f`, "ValueError: </pre>\n::set-env name=PATH::/evil 100% | `x` [a](http://b)"}
	out, added, _ = toGitHub(t, summary, over(attempt(0, hostile, wrong, stopped(strategy.Failed, 1, "attempt 0: "+hostile[2]))))
	want = `
::error title=gpurun%3A gpt%2C run,file=src/train.py,line=3::attempt 0: ValueError: </pre>\n::set-env name=PATH::/evil 100%25 | ` + "`x` [a](http://b)\n"
	if out != want {
		t.Errorf("%q\nwant %q", out, want)
	}
	for _, part := range []string{`100\% \| \` + "`x\\` " + `\[a\]\(http\:\/\/b\)`, "<pre>Traceback (most recent call last):\n", "&lt;/pre&gt;"} {
		if !strings.Contains(added, part) {
			t.Errorf("the summary has no %q:\n%s", part, added)
		}
	}
}

// A summary is not written through a link, nor where GitHub would throw it away.
func TestSummariesThatAreRefused(t *testing.T) {
	dir := t.TempDir()
	elsewhere, link, full := filepath.Join(dir, "elsewhere"), filepath.Join(dir, "link"), filepath.Join(dir, "full")
	if err := os.Symlink(elsewhere, link); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(full, make([]byte, mostSummary-10), 0o644); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{link: "symbolic link", full: "no room for more", filepath.Join(dir, "x", "y"): "no such file"} {
		if _, _, warned := toGitHub(t, path, nil); !strings.HasPrefix(warned, "gpurun: warning: GITHUB_STEP_SUMMARY: ") || !strings.Contains(warned, want) {
			t.Errorf("%s: %q", path, warned)
		}
	}
	if _, err := os.Lstat(elsewhere); err == nil {
		t.Error("a link was followed")
	}
}

// startsCommand is how GitHub's runner finds a command in a line.
func startsCommand(line string) bool {
	return strings.HasPrefix(strings.TrimSpace(line), "::") || strings.Contains(line, "##[")
}

// Nothing that gpurun says is a command, and nothing of an annotation is a second one.
func TestNothingIsACommand(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		pieces := rapid.SliceOf(rapid.SampledFrom([]string{"::", "##[", "#", "[", ":", "add-mask", "\n", "\r", "%0A", "%", " ", "\t", "\u00a0", "\u3000", "x", ",", "file="})).Draw(t, "pieces")
		text := strings.Join(pieces, "")
		var words, out strings.Builder
		if n, err := (defused{&words}).Write([]byte(text + "\n")); err != nil || n != len(text)+1 {
			t.Fatal(n, err)
		}
		for _, line := range strings.FieldsFunc(words.String(), func(r rune) bool { return r == '\n' || r == '\r' }) {
			if startsCommand(line) {
				t.Fatalf("%q becomes %q", text, words.String())
			}
		}
		g := &github{stdout: &out, workspace: "/ci"}
		g.say("error", &course{job: text}, outcome{name: "run", message: text, traceback: []string{`  File "/ci/` + text + `", line 3, in f`}})
		if lines := strings.FieldsFunc(out.String(), func(r rune) bool { return r == '\n' || r == '\r' }); len(lines) != 1 {
			t.Fatalf("%q", lines)
		}
		properties, data, _ := strings.Cut(strings.TrimPrefix(out.String(), "::error "), "::")
		if strings.Count(properties, ",") > 2 || strings.Count(properties, "=")-strings.Count(text, "=")*2 > 3 || data != escapeData.Replace(text)+"\n" && !strings.ContainsAny(text, "\r\n") {
			t.Fatalf("%q, %q", properties, data)
		}
	})
}
