package doctor

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gpurun/gpurun/launcher/mask"
	"github.com/gpurun/gpurun/test/testenv"
)

var shown = []Result{
	{"interpreter", "python", OK, "Python 3.12.3, /opt/venv/bin/python (VIRTUAL_ENV)", ""},
	{"torch", "python", Problem, "2.9.0+cu130 is built for CUDA 13.0, and driver 550.54.15 knows CUDA 12 at most", "have the driver updated (580 or newer), or install a PyTorch for CUDA 12"},
	{"speed", "nvme", Skipped, "no folder is named", ""},
	{"libaio", "nvme", Skipped, "no folder is named", ""},
	{"NCCL", "ranks", Skipped, "there is one GPU", ""},
	{"place", "scheduler", Skipped, "busy", ""},
	{"time", "scheduler", Warning, "soon", "ask for more"},
}

const page = `Python
  ✓ interpreter    Python 3.12.3, /opt/venv/bin/python (VIRTUAL_ENV)
  ✗ torch          2.9.0+cu130 is built for CUDA 13.0, and driver 550.54.15
                   knows CUDA 12 at most
    → have the driver updated (580 or newer), or install a PyTorch for CUDA 12
NVMe – no folder is named
Ranks together – there is one GPU
Scheduler
  – place          busy
  ! time           soon
    → ask for more
1 problem, 1 warning
`

func TestText(t *testing.T) {
	r := newReport(shown, nil)
	if got := r.text(style{}); got != page {
		t.Errorf("%s\nwant\n%s", got, page)
	}
	for line := range strings.Lines(r.text(style{})) {
		if n := len([]rune(strings.TrimSuffix(line, "\n"))); n > width {
			t.Errorf("%d columns: %s", n, line)
		}
	}
	ascii := r.text(style{ascii: true})
	if !strings.Contains(ascii, "  x torch") || !strings.Contains(ascii, "    > have") || strings.IndexFunc(ascii, func(r rune) bool { return r > 127 }) >= 0 {
		t.Errorf("not ASCII:\n%s", ascii)
	}
	coloured := r.text(style{colour: true})
	if !strings.Contains(coloured, "\x1b[31m✗\x1b[0m torch") || !strings.Contains(coloured, "\x1b[33m!\x1b[0m time") || strings.Count(coloured, "\x1b[") != 4 {
		t.Errorf("%q", coloured)
	}
}

func TestSummary(t *testing.T) {
	for want, r := range map[string]Report{"no problems": {}, "2 problems, 1 warning": {Problems: 2, Warnings: 1}, "1 problem": {Problems: 1}, "no problems, 3 warnings": {Warnings: 3}} {
		if got := r.Summary(); got != want || r.Code() != min(r.Problems, 1) {
			t.Errorf("%q with code %d, want %q", got, r.Code(), want)
		}
	}
}

// What a terminal would obey, and secrets of the job, are not shown.
func TestReportIsSafe(t *testing.T) {
	r := newReport([]Result{problem("x", "\x1b]0;owned\a and hunter2hunter2")}, mask.New(nil, map[string]string{"API_TOKEN": "hunter2hunter2"}))
	if text := r.text(style{}); strings.ContainsAny(text, "\x1b\a") || strings.Contains(text, "hunter2") {
		t.Errorf("%q", text)
	}
}

func TestStyle(t *testing.T) {
	screen, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0) // a terminal, as is its other end
	testenv.Check(t, err)
	defer screen.Close()
	file, err := os.Create(filepath.Join(t.TempDir(), "out"))
	testenv.Check(t, err)
	defer file.Close()
	for _, c := range []struct {
		out  *os.File
		env  map[string]string
		want style
	}{
		{screen, map[string]string{"LANG": "en_US.UTF-8"}, style{colour: true}},
		{screen, map[string]string{"LANG": "C.utf8", "NO_COLOR": "1"}, style{}},
		{screen, map[string]string{"LC_ALL": "C", "LANG": "en_US.UTF-8", "TERM": "dumb"}, style{ascii: true}},
		{file, map[string]string{"LC_CTYPE": "de_DE.UTF-8"}, style{}},
		{file, nil, style{ascii: true}},
	} {
		if got := styleOf(c.out, func(name string) string { return c.env[name] }); got != c.want {
			t.Errorf("%v: %+v, want %+v", c.env, got, c.want)
		}
	}
}
