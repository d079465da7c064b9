package ranks

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// What a command started is ended with it: its children, those in sessions of their own, and
// those that have lost their parents, whether it ends by itself or is ended.
func TestBesideEndsAllThatACommandStarted(t *testing.T) {
	const starts = `echo $$ >first
sleep 1000 & echo $! >child
setsid sh -c 'echo $$ >session.new; mv session.new session; sleep 1000' &
setsid sh -c 'setsid sh -c "echo \$\$ >orphan.new; mv orphan.new orphan; sleep 1000" & sleep 0.01' &
until [ -e session ] && [ -e orphan ]; do sleep 0.01; done
`
	for name, test := range map[string]struct {
		rest string
		want error
	}{"it is ended": {"echo yes >ready; sleep 1000", errors.New("time is up")}, "it ends": {"echo yes >ready", nil}} {
		dir := t.TempDir()
		cmd := Rank{Argv: []string{"sh", "-c", starts + test.rest}, Env: os.Environ(), Dir: dir}
		ctx, cancel := context.WithCancelCause(t.Context())
		ended := make(chan error)
		go func() {
			_, err := RunBeside(ctx, []Rank{cmd})
			ended <- err
		}()
		for test.want != nil {
			if _, err := os.Stat(filepath.Join(dir, "ready")); err == nil {
				cancel(test.want)
				break
			}
			time.Sleep(time.Millisecond)
		}
		if err := <-ended; !errors.Is(err, test.want) {
			t.Errorf("%s: %v", name, err)
		}
		cancel(nil)
		for _, file := range []string{"first", "child", "session", "orphan"} {
			text, err := os.ReadFile(filepath.Join(dir, file))
			if err != nil {
				t.Fatal(err)
			}
			pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
			if err != nil {
				t.Fatal(err)
			}
			if p, err := readProcess(pid); err == nil && p.alive() {
				t.Errorf("%s: %s, process %d, is left (%s)", name, file, pid, p.name)
			}
		}
	}
}

// What a process says is bounded, and one that is not there is an error.
func TestBesideBoundsOutput(t *testing.T) {
	flood := Rank{Argv: []string{"head", "-c", "20000000", "/dev/zero"}, Env: os.Environ()}
	all, err := RunBeside(t.Context(), []Rank{flood})
	if err != nil || len(all[0].Out) != mostOutput || all[0].Code != 0 {
		t.Errorf("%d bytes with code %d, %v", len(all[0].Out), all[0].Code, err)
	}
	if _, err := RunBeside(t.Context(), []Rank{{Argv: []string{"no-such-program"}}}); err == nil {
		t.Error("a program that is not there started")
	}
}
