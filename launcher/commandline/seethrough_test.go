package commandline

import (
	"strings"
	"testing"
)

// TestSeeThrough: the command behind wrappers, what of them stays, and with which
// words the interpreter is queried. A bar is before the command.
func TestSeeThrough(t *testing.T) {
	for line, want := range map[string]struct {
		words, inner, ask string
		env, direct       string
	}{
		"python a.py":                                    {"", "python a.py", "", "", ""},
		"nohup python a.py":                              {"nohup", "python a.py", "nohup", "", ""},
		"time -p nice -n 5 python -m p":                  {"time -p nice -n 5", "python -m p", "time -p nice -n 5", "", ""},
		"timeout -k 5 2h uv run --with x python a.py":    {"timeout -k 5 2h uv run --with x", "python a.py", "timeout -k 5 2h uv run --with x", "", ""},
		"env A=1 numactl -N 0 env B=2 stdbuf -oL a":      {"numactl -N 0 stdbuf -oL", "a", "numactl -N 0 stdbuf -oL", "A=1 B=2", ""},
		"env -u X A=1 python a.py":                       {"env -u X A=1", "python a.py", "env -u X A=1", "A=1", ""},
		"uv run a.py --x 1":                              {"uv run", "a.py --x 1", "uv run", "", "direct"},
		"uv run --extra cu a.py":                         {"uv run --extra cu", "a.py", "uv run --extra cu", "", "direct"},
		"uv run -q -m pkg.train --x":                     {"uv run -q", "python -m pkg.train --x", "uv run -q", "", ""},
		"uv run --module pkg.train":                      {"uv run", "python -m pkg.train", "uv run", "", ""},
		"uv run --script tool --x":                       {"uv run --script", "tool --x", "uv run", "", "direct"},
		"uv run https://x.y/a.py":                        {"uv run", "https://x.y/a.py", "uv run", "", ""},
		"uv run torchrun --nproc-per-node 2 a.py":        {"uv run", "torchrun --nproc-per-node 2 a.py", "uv run", "", ""},
		"uv run nohup a.py":                              {"uv run nohup", "a.py", "uv run nohup", "", ""},
		"poetry run python a.py":                         {"poetry run", "python a.py", "poetry run", "", ""},
		"conda run -n x --no-capture-output python a.py": {"conda run -n x --no-capture-output", "python a.py", "conda run -n x --no-capture-output", "", ""},
		"pixi run -e gpu python a.py":                    {"pixi run -e gpu", "python a.py", "pixi run -e gpu", "", ""},
		"pdm run a.py":                                   {"pdm run", "a.py", "pdm run", "", "direct"},
		"apptainer exec --nv x.sif python a.py":          {"apptainer exec --nv x.sif", "python a.py", "apptainer exec --nv x.sif", "", ""},
		"uv run --directory d python a.py":               {"", "uv run --directory d python a.py", "", "", ""},
		"env -i python a.py":                             {"", "env -i python a.py", "", "", ""},
		"nohup env -C d python a.py":                     {"nohup", "env -C d python a.py", "nohup", "", ""},
		"sudo python a.py":                               {"", "sudo python a.py", "", "", ""},
		"uv run --never-heard x a.py":                    {"", "uv run --never-heard x a.py", "", "", ""},
		"uv pip install x":                               {"", "uv pip install x", "", "", ""},
	} {
		s := Known.SeeThrough(strings.Fields(line))
		direct := ""
		if s.Direct {
			direct = "direct"
		}
		join := func(words []string) string { return strings.Join(words, " ") }
		if join(s.Words) != want.words || join(s.Inner) != want.inner || join(s.Ask) != want.ask || direct != want.direct || join(s.Env.Words()) != want.env {
			t.Errorf("%s: %q | %q, asked with %q, %v %s", line, s.Words, s.Inner, s.Ask, s.Env, direct)
		}
	}
	for line, want := range map[string]string{
		"conda run -n x python a.py":       "conda run: it holds the command's output back until the end, without --no-capture-output",
		"conda run --live-stream python a": "",
		"uv run --directory d python a.py": "--directory of uv run starts it in another directory, so gpurun does not read the command after it",
		"sudo python a.py":                 "sudo takes variables of its environment away, so gpurun does not read the command after it: put gpurun between them",
		"nohup python a.py":                "",
	} {
		s := Known.SeeThrough(strings.Fields(line))
		if got := strings.Join(s.Warnings, "; "); got != want {
			t.Errorf("%s: %q, want %q", line, got, want)
		}
	}
	if s := Known.SeeThrough(strings.Fields("timeout 1 uv run a.py")); !s.Environment() || !s.Installs() {
		t.Errorf("%+v", s)
	}
	if s := Known.SeeThrough(strings.Fields("timeout 1 nice a.py")); s.Environment() || s.Installs() {
		t.Errorf("%+v", s)
	}
}
