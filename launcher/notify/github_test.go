package notify

import (
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/gpurun/gpurun/launcher"
	"github.com/gpurun/gpurun/strategy"
	_ "github.com/gpurun/gpurun/test/testenv"
)

// toGitHub reports a run to GitHub, and returns what stdout has.
func toGitHub(t *testing.T, events []launcher.Event) string {
	t.Helper()
	var stdout, stderr strings.Builder
	env := map[string]string{"GITHUB_ACTIONS": "true", "GITHUB_WORKSPACE": "/ci/repo"}
	p, err := OpenPipeline(PipelineSetup{
		Job: "gpt", Workdir: "/ci/repo/src", Stdout: &stdout, Stderr: &stderr,
		Getenv: func(name string) string { return env[name] },
	})
	if err != nil {
		t.Fatal(err)
	}
	show := p.Events(func(launcher.Event) {})
	for _, e := range events {
		show(e)
	}
	p.End(nil)
	if stderr.Len() > 0 {
		t.Error(stderr.String())
	}
	return stdout.String()
}

func TestAnnotations(t *testing.T) {
	trained := attempt(1, nil, well, stopped(strategy.Trained, 0, "attempt 1: trained"))
	want := `
::warning title=gpurun%3A gpt%2C attempt 0,file=src/train.py,line=10::attempt 0: CUDA out of memory → micro batch 8→4
::notice title=gpurun%3A gpt%2C run::attempt 1: trained
`
	if out := toGitHub(t, over(attempt(0, frames, oom, smaller), trained)); out != want {
		t.Errorf("%s", out)
	}
	hostile := []string{
		"Traceback (most recent call last):", `  File "train.py", line 3, in f`,
		"ValueError: </pre>\n::set-env name=PATH::/evil 100% | `x` [a](http://b)",
	}
	out := toGitHub(t, over(attempt(0, hostile, wrong, stopped(strategy.Failed, 1, "attempt 0: "+hostile[2]))))
	want = `
::error title=gpurun%3A gpt%2C run,file=src/train.py,line=3::attempt 0: ValueError: </pre>\n::set-env name=PATH::/evil 100%25 | ` +
		"`x` [a](http://b)\n"
	if out != want {
		t.Errorf("%q\nwant %q", out, want)
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
		if n, err := (commandEscaper{&words}).Write([]byte(text + "\n")); err != nil || n != len(text)+1 {
			t.Fatal(n, err)
		}
		for _, line := range strings.FieldsFunc(words.String(), func(r rune) bool { return r == '\n' || r == '\r' }) {
			if startsCommand(line) {
				t.Fatalf("%q becomes %q", text, words.String())
			}
		}
		g := &github{stdout: &out, workspace: "/ci"}
		g.say("error", &history{job: text}, outcome{name: "run", message: text, traceback: []string{`  File "/ci/` + text + `", line 3, in f`}})
		if lines := strings.FieldsFunc(out.String(), func(r rune) bool { return r == '\n' || r == '\r' }); len(lines) != 1 {
			t.Fatalf("%q", lines)
		}
		properties, data, _ := strings.Cut(strings.TrimPrefix(out.String(), "::error "), "::")
		if strings.Count(properties, ",") > 2 || strings.Count(properties, "=")-strings.Count(text, "=")*2 > 3 || data != escapeData.Replace(text)+"\n" && !strings.ContainsAny(text, "\r\n") {
			t.Fatalf("%q, %q", properties, data)
		}
	})
}
