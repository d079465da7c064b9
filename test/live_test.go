package test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/gpurun/gpurun/test/testenv"
)

// watchedTrainer trains until the test ends it, and prints lines or its own progress bar.
const watchedTrainer = `
import os, sys, time
import torch
model = torch.nn.Linear(64, 64)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
n = 0
while not os.path.exists("go"):
    loss = model(torch.ones(8, 64)).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    n += 1
    if sys.argv[1] == "bar":
        sys.stdout.write("\r%3d%%|%s| %d/1000" % (n // 10, "█" * (n % 30), n))
    elif n % 7 == 1:
        print("\x1b[36mstep %d/1000\x1b[0m loss 0.25 – über alles" % n)
    sys.stdout.flush()
    time.sleep(0.1)
print("\nthe end")
`

const watchedJob = `[job]
script = "train.py"
args = ["%s"]
[launch]
nproc_per_node = 1
[progress]
step = 'step (?P<step>\d+)/(?P<total>\d+).* loss (?P<loss>\S+)'
`

// A pane is a tmux terminal with a shell in a job's folder.
type pane struct {
	t      *testing.T
	server string
	dir    string
}

// openPane opens a pane, and starts a job in it whose trainer prints in a style.
func openPane(t *testing.T, columns int, style string) *pane {
	t.Helper()
	if _, err := exec.LookPath("tmux"); err != nil {
		t.Skip("no tmux here, whose terminal shows what people see")
	}
	interpreter := testenv.Python(t)
	if err := exec.Command(interpreter, "-c", "import importlib.util, sys; sys.exit(not importlib.util.find_spec('torch'))").Run(); err != nil {
		t.Skipf("%s has no PyTorch", interpreter)
	}
	dir := home(t, map[string]string{"train.py": watchedTrainer, "train.toml": fmt.Sprintf(watchedJob, style)})
	p := &pane{t: t, server: fmt.Sprintf("gpurun-%d-%d-%s", os.Getpid(), columns, style), dir: dir}
	t.Cleanup(func() { _ = exec.Command("tmux", "-L", p.server, "kill-server").Run() }) // it may have ended
	p.tmux("-f", "/dev/null", "new-session", "-d", "-c", dir, "-x", strconv.Itoa(columns), "-y", "20", "env", "PS1=$ ", "LC_ALL=C.UTF-8", "PYTHON_EXEC="+interpreter, "sh")
	p.tmux("pipe-pane", "cat >"+filepath.Join(dir, "bytes"))
	p.tmux("send-keys", build(t)+" --run-dir run train.toml", "Enter")
	return p
}

func (p *pane) tmux(args ...string) string {
	p.t.Helper()
	out, err := exec.Command("tmux", append([]string{"-u", "-L", p.server}, args...)...).CombinedOutput()
	if err != nil {
		p.t.Fatalf("tmux %q: %v %s", args, err, out)
	}
	return string(out)
}

// last returns the last line on the screen that is not empty.
func (p *pane) last() string {
	lines := strings.Split(strings.TrimRight(p.tmux("capture-pane", "-p"), "\n "), "\n")
	return lines[len(lines)-1]
}

// await polls until ok. Its bound is long, since PyTorch starts slowly on a busy machine.
func (p *pane) await(what string, ok func() bool) {
	p.t.Helper()
	defer func() {
		if p.t.Failed() {
			p.t.Logf("the screen:\n%s", p.tmux("capture-pane", "-p", "-e"))
		}
	}()
	for deadline := time.Now().Add(2 * time.Minute); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		if ok() {
			return
		}
	}
	p.t.Fatalf("waited in vain for %s", what)
}

// end lets the job end, and returns the terminal's output without gpurun's.
func (p *pane) end() string {
	p.t.Helper()
	if err := os.WriteFile(filepath.Join(p.dir, "go"), nil, 0o600); err != nil {
		p.t.Fatal(err)
	}
	p.await("the end", func() bool { return p.last() == "$" })
	bytes, err := os.ReadFile(filepath.Join(p.dir, "bytes"))
	if err != nil {
		p.t.Fatal(err)
	}
	own := regexp.MustCompile(`attempt 0[^\r\n]*\x1b\[0m\x1b\[J\r|\r\x1b\[J|(?:\x1b\[22;0t)?\x1b\]0;[^\a]*\a(?:\x1b\[23;0t)?`)
	said := regexp.MustCompile(`(?m:^gpurun: .*\n|^\$ .*\n?|^.*--run-dir run train.toml\n)`)
	return said.ReplaceAllString(own.ReplaceAllString(strings.ReplaceAll(string(bytes), "\r\n", "\n"), ""), "")
}

func (p *pane) log() string {
	p.t.Helper()
	text, err := os.ReadFile(filepath.Join(p.dir, "run", "attempt-0", "rank0", "stdout.log"))
	if err != nil {
		p.t.Fatal(err)
	}
	return string(text)
}

// lab skips a variant of another test, unless GPURUN_LAB requests all.
func lab(t *testing.T) {
	t.Helper()
	if !inLab() {
		t.Skip("GPURUN_LAB=1 shows this, too")
	}
}

// inLab returns whether GPURUN_LAB requests all variants.
func inLab() bool { return os.Getenv("GPURUN_LAB") != "" }

// oneIn returns whether make test runs this one of many cases that take long; make lab runs them all.
func oneIn(n, number int) bool { return inLab() || number%n == 0 }

// One line is below the job's output. It fits any width of the terminal, comes back after Ctrl-Z, and is gone
// at the end. The job's bytes are unchanged.
func TestTheLineOnATerminal(t *testing.T) {
	t.Parallel()
	line := regexp.MustCompile(`^attempt 0( \(first of at most 20\))? · step \d+/1000.* · CPU \S+ [GM]iB`)
	for _, columns := range []int{80, 120} {
		t.Run(strconv.Itoa(columns), func(t *testing.T) {
			t.Parallel()
			if columns != 80 {
				lab(t)
			}
			p := openPane(t, columns, "lines")
			shown := func() bool { return line.MatchString(p.last()) && utf8.RuneCountInString(p.last()) < columns }
			p.await("the line", shown)
			if columns = 60; p.tmux("resize-window", "-x", "60") != "" {
				t.Error("tmux had something to say")
			}
			p.await("the line on a narrow terminal", func() bool {
				return shown() && strings.Count(p.tmux("capture-pane", "-p"), "\nattempt 0") == 1
			})
			p.tmux("send-keys", "C-z")
			p.await("the shell", func() bool {
				return strings.HasPrefix(p.last(), "$") && !strings.Contains(p.tmux("capture-pane", "-p"), "\nattempt 0")
			})
			p.tmux("send-keys", "fg", "Enter")
			p.await("the line again", shown)
			got, want := p.end(), p.log()
			if i := strings.Index(got, "fg\n"); i >= 0 { // the text of the shell and its user meanwhile
				from, to := strings.LastIndex(got[:i], "^Z"), i+len("fg\n")+strings.Index(got[i+len("fg\n"):], "\n")+1
				got = got[:from] + got[to:]
			}
			if strings.TrimSpace(got) != strings.TrimSpace(want) {
				t.Errorf("the terminal got\n%q\nthe job wrote\n%q", got, want)
			}
			if screen := p.tmux("capture-pane", "-p"); strings.Contains(screen, "\nattempt 0") || !strings.Contains(screen, "the end") {
				t.Errorf("at the end:\n%s", screen)
			}
		})
	}
}

// A job with its own progress bar keeps its lines: gpurun's line is in the title.
func TestABarOfTheJobsOwn(t *testing.T) {
	t.Parallel()
	lab(t)
	p := openPane(t, 80, "bar")
	title := regexp.MustCompile(`^attempt 0 \(first of at most 20\) · step \d+ · .*CPU \S+ [GM]iB`)
	before := p.tmux("display", "-p", "#{pane_title}")
	p.await("the title", func() bool { return title.MatchString(p.tmux("display", "-p", "#{pane_title}")) })
	p.await("the bar", func() bool { return strings.Contains(p.last(), "/1000") })
	if screen := p.tmux("capture-pane", "-p"); strings.Contains(screen, "· CPU") {
		t.Errorf("a line beside the bar:\n%s", screen)
	}
	if got, want := p.end(), p.log(); strings.TrimSpace(got) != strings.TrimSpace(want) {
		t.Errorf("the terminal got\n%q\nthe job wrote\n%q", got, want)
	}
	p.await("the title as it was", func() bool { return p.tmux("display", "-p", "#{pane_title}") == before })
}
