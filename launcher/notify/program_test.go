package notify

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// A program gets the event on its stdin, where the job is, and is tried once.
func TestProgram(t *testing.T) {
	dir := t.TempDir()
	run := func(script string, timeout time.Duration) error {
		return (&eventCommand{argv: []string{"sh", "-c", script}, dir: dir, timeout: timeout}).send(t.Context(), message, event)
	}
	if err := run("cat >got", time.Minute); err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(filepath.Join(dir, "got")); err != nil || string(got) != string(event)+"\n" {
		t.Errorf("it got %q, %v", got, err)
	}
	if err := run("exit 0", time.Minute); err != nil { // without reading
		t.Error(err)
	}
	for script, want := range map[string]string{
		"echo one >&2; echo 'no such\x1bchannel' >&2; exit 3": `sh: exit status 3: no such\x1bchannel`,
		"yes >&2":                     "it took longer than 100ms and was ended",
		"kill -9 $$":                  "sh: signal: killed",
		"trap '' TERM INT; sleep 999": "it took longer than 100ms and was ended",
	} {
		var refused *refusal
		timeout := time.Minute
		if strings.Contains(want, "took longer") {
			timeout = 100 * time.Millisecond
		}
		if err := run(script, timeout); !errors.As(err, &refused) || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", script, err, want)
		}
	}
	gone := &eventCommand{argv: []string{"/no/such/program"}, dir: dir, timeout: time.Minute}
	if err := gone.send(t.Context(), message, event); err == nil || !strings.Contains(err.Error(), "/no/such/program: no such file") && !strings.Contains(err.Error(), "no such file or directory") {
		t.Errorf("%v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	var refused *refusal
	if err := gone.send(ctx, message, event); err == nil || errors.As(err, &refused) {
		t.Errorf("cancelled: %v", err)
	}
}
