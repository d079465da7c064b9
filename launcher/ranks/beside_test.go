package ranks

import (
	"context"
	"errors"
	"io"
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
		cmd := SideCommand{Argv: []string{"sh", "-c", starts + test.rest}, Dir: dir, Stderr: io.Discard}
		ctx, cancel := context.WithCancelCause(t.Context())
		ended := make(chan error)
		go func() { ended <- RunBeside(ctx, cmd) }()
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
