package pipeline

import (
	"regexp"
	"strings"
	"testing"

	"github.com/gpurun/gpurun/launcher"
	"github.com/gpurun/gpurun/strategy"
)

// In GitLab's log each attempt is a section that ends before the next begins.
func TestSections(t *testing.T) {
	var words strings.Builder
	p, err := Open(Setup{Getenv: func(name string) string { return map[string]string{"GITLAB_CI": "true"}[name] }})
	if err != nil {
		t.Fatal(err)
	}
	show := p.Events(func(launcher.Event) {})
	p.Words(&words, nil)
	for _, e := range over(attempt(0, frames, oom, smaller), attempt(1, nil, well, stopped(strategy.Trained, 0, "attempt 1: trained"))) {
		show(e)
	}
	show(launcher.Started{N: 2})
	p.End(nil)
	got := regexp.MustCompile(`:\d{10}:`).ReplaceAllString(words.String(), ":NOW:")
	want := ""
	for _, n := range []string{"0", "1", "2"} {
		want += "\x1b[0Ksection_start:NOW:gpurun_attempt_" + n + "\r\x1b[0Kattempt " + n + "\n" + "\x1b[0Ksection_end:NOW:gpurun_attempt_" + n + "\r\x1b[0K\n"
	}
	if got != want {
		t.Errorf("%q\nwant %q", got, want)
	}
}
