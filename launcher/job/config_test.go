package job

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gpurun/gpurun/launcher/commandline"
	"github.com/gpurun/gpurun/launcher/errext"
	"github.com/gpurun/gpurun/strategy"
)

func TestConfigFile(t *testing.T) {
	for want, env := range map[string]commandline.Environ{
		"/x/gpurun/config.toml":         {"XDG_CONFIG_HOME": "/x", "HOME": "/h"},
		"/h/.config/gpurun/config.toml": {"XDG_CONFIG_HOME": "relative", "HOME": "/h"},
		"":                              {"HOME": ""},
	} {
		if got := ConfigFile(env); got != want {
			t.Errorf("%v: %q, want %q", env, got, want)
		}
	}
}

// A flag is stronger than the train.toml, that than the user's configuration, and that
// than the default, each key by itself.
func TestPrecedenceOfPolicy(t *testing.T) {
	dir, env := typedAt(t)
	t.Chdir(dir)
	put(t, filepath.Join(dir, ".config/gpurun/config.toml"), `
[recovery]
mode = "off"
climb = false
prefer = "tree"
max_attempts = 3
never = ["nvme"]
nvme_path = "swap"
restart_from_zero = "5m"
[limits]
device_memory = "1GiB"
`)
	put(t, filepath.Join(dir, "train.toml"), "[job]\nscript = \"train.py\"\n[recovery]\nmax_attempts = 4\nnumerics = \"any\"\nnever = [\"shard\"]\n[limits]\ndevice_memory = \"2GiB\"\n")
	put(t, filepath.Join(dir, "plain.toml"), "[job]\nscript = \"train.py\"\n")
	configured := defaults().Policy
	configured.Mode, configured.MaxAttempts, configured.Never, configured.RestartFromZero = "off", 3, []string{"nvme"}, 5*60e9
	configured.Speedup, configured.Prefer = false, "tree"
	configured.NVMePath = filepath.Join(dir, ".config/gpurun/swap")
	for line, want := range map[string]struct {
		change func(*strategy.Policy)
		bytes  int64
		said   bool
	}{
		"python train.py": {func(*strategy.Policy) {}, 1 << 30, false},
		"train.py":        {func(*strategy.Policy) {}, 1 << 30, false},
		"plain.toml":      {func(*strategy.Policy) {}, 1 << 30, false},
		"train.toml":      {func(r *strategy.Policy) { r.MaxAttempts, r.Numerics, r.Never = 4, "any", []string{"shard"} }, 2 << 30, true},
		"--mode ladder --max-attempts 9 --device-memory 3GiB train.toml": {func(r *strategy.Policy) {
			r.Mode, r.MaxAttempts, r.Numerics, r.Never = "ladder", 9, "any", []string{"shard"}
		}, 3 << 30, true},
		"train.toml --never precision --never=nvme,micro-batch": {func(r *strategy.Policy) {
			r.MaxAttempts, r.Numerics, r.Never = 4, "any", []string{"precision", "nvme", "micro-batch"}
		}, 2 << 30, true},
		"--numerics preserve uv run train.py": {func(r *strategy.Policy) { r.Numerics = "preserve" }, 1 << 30, true},
	} {
		j, _, err := Open(t.Context(), strings.Fields(line), env, dir)
		if err != nil {
			t.Errorf("%s: %v", line, err)
			continue
		}
		recovery := configured
		recovery.NumericsSaid = want.said
		want.change(&recovery)
		if diff := cmp.Diff(recovery, j.Policy); diff != "" || j.DeviceMemory != want.bytes {
			t.Errorf("%s: %d bytes (-want +got):\n%s", line, j.DeviceMemory, diff)
		}
		p := &Prepared{Resolved: Resolved{Inspected: Inspected{Job: *j}}}
		if policy := p.Policy(); policy.NumericsSaid != want.said || policy.MaxAttempts != recovery.MaxAttempts {
			t.Errorf("%s: policy %+v", line, policy)
		}
	}
	put(t, filepath.Join(dir, ".config/gpurun/config.toml"), "[recovery]\nnumerics = \"mixed-precision\"\n")
	if j, _, err := Open(t.Context(), []string{"train.py"}, env, dir); err != nil || !j.Policy.NumericsSaid {
		t.Errorf("numerics in the configuration: %v, %+v", err, j)
	}
}

// The mode of one's own configuration holds, and a word before the command outranks it.
func TestLastModeCounts(t *testing.T) {
	dir, env := typedAt(t)
	put(t, filepath.Join(dir, ".config/gpurun/config.toml"), "[recovery]\nmode = \"off\"\n")
	for line, want := range map[string]string{"train.py": "off", "--mode ladder train.py": "ladder", "--mode predict train.py": "predict"} {
		j, _, err := Open(t.Context(), strings.Fields(line), env, dir)
		if err != nil || string(j.Policy.Mode) != want {
			t.Errorf("%s: %v, %q", line, err, j.Policy.Mode)
		}
	}
}

// The configuration is judged as a train.toml is, with positions.
func TestConfigIsJudged(t *testing.T) {
	dir, env := typedAt(t)
	file := filepath.Join(dir, ".config/gpurun/config.toml")
	for text, want := range map[string]string{
		"[recovery]\nmod = \"off\"\n":                             `2:1: recovery.mod: unknown key (did you mean "mode"?)`,
		"[recovry]\n":                                             `1:2: recovry: unknown table (did you mean "recovery"?)`,
		"[launch]\nranks = \"self\"\n":                            "2:1: launch.ranks: unknown key; it belongs in a train.toml: it is about one job",
		"[fits]\nshared = \"/x\"\n":                               "1:2: fits: unknown table; the tables are launch, limits, metrics, notify, recovery",
		"locked = [\"recovery.never\"]\n":                         "1:1: locked: unknown key",
		"[recovery]\nmode = \"lader\"\n":                          `2:8: recovery.mode: unknown value "lader"`,
		"[limits]\ndevice_memory = \"24G\"\n":                     `2:17: limits.device_memory: "24G" has an unknown unit`,
		"[notify]\nstyle = \"json\"\n":                            "2:1: notify.style: was removed, since each event is sent as gpurun's own JSON",
		"notify = 3\n":                                            "1:10: notify: want a table, found a whole number",
		"recovery = 3\n":                                          "1:12: recovery: want a table",
		"[recovery]\nmode = \"off\nx\n":                           "2:12: not TOML",
		"[recovery]\nnever = [\"checkpoint\"]\n[limits]\nx = 1\n": "4:1: limits.x: unknown key",
	} {
		put(t, file, text)
		_, _, err := Open(t.Context(), []string{"train.py"}, env, dir)
		var wrong *Error
		if !errors.As(err, &wrong) || !strings.Contains(err.Error(), file+":"+want) || wrong.File != file {
			t.Errorf("%q: %v, want %s", text, err, want)
		}
	}
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(file, 0o755); err != nil {
		t.Fatal(err)
	}
	if _, _, err := Open(t.Context(), []string{"train.py"}, env, dir); err == nil || errext.Hint(err) == "" {
		t.Errorf("a folder: %v", err)
	}
	for _, home := range []string{"/dev/null", filepath.Join(dir, "nowhere")} {
		if _, _, err := Open(t.Context(), []string{"train.py"}, append(env, "HOME="+home), dir); err != nil {
			t.Errorf("a home that is none (%s): %v", home, err)
		}
	}
}
