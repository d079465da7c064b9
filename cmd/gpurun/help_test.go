package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/urfave/cli/v2"

	"github.com/gpurun/gpurun/test/testenv"
)

// gpurunSays runs gpurun in this process, and returns what it printed.
func gpurunSays(t *testing.T, words ...string) (code int, out, errs string) {
	t.Helper()
	open := func(name string) *os.File {
		f, err := os.Create(filepath.Join(t.TempDir(), name))
		testenv.Check(t, err)
		t.Cleanup(func() { f.Close() })
		return f
	}
	stdout, stderr := open("out"), open("err")
	null, err := os.Open(os.DevNull)
	testenv.Check(t, err)
	defer null.Close()
	code = Main(append([]string{"gpurun"}, words...), null, stdout, stderr)
	read := func(f *os.File) string {
		text, err := os.ReadFile(f.Name())
		testenv.Check(t, err)
		return string(text)
	}
	return code, read(stdout), read(stderr)
}

// The help of a verb is one text, however it is asked for, and has all its parts.
func TestHelpIsTheSameText(t *testing.T) {
	var paths [][]string
	for _, c := range newApp(stdio{}).Commands {
		paths = append(paths, []string{c.Name})
		for _, sub := range c.Subcommands {
			paths = append(paths, []string{c.Name, sub.Name})
		}
	}
	if len(paths) < 8 {
		t.Fatalf("verbs %v", paths)
	}
	for _, path := range paths {
		name := strings.Join(path, " ")
		_, want, _ := gpurunSays(t, append([]string{"help"}, path...)...)
		for _, part := range []string{
			"NAME:\n   gpurun " + name + " - ", "USAGE:\n   gpurun ", "OPTIONS:\n", "--help, -h", "EXIT STATUS:\n   0    ", "   2    ",
		} {
			if !strings.Contains(want, part) {
				t.Errorf("help %s has no %q:\n%s", name, part, want)
			}
		}
		for _, flag := range []string{"--help", "-h"} {
			code, got, errs := gpurunSays(t, append(slices.Clone(path), flag)...)
			if code != 0 || got != want || errs != "" {
				t.Errorf("%s %s: %d, %q\n%s", name, flag, code, errs, got)
			}
		}
		for line := range strings.Lines(want) {
			if line := strings.TrimRight(line, "\n"); line != strings.TrimRight(line, " ") || len([]rune(line)) > 140 {
				t.Errorf("help %s: %q", name, line)
			}
		}
	}
}

// Every flag of a verb is in its help.
func TestHelpHasEveryFlag(t *testing.T) {
	for _, c := range newApp(stdio{}).Commands {
		_, text, _ := gpurunSays(t, "help", c.Name)
		for _, f := range c.Flags {
			if name := f.Names()[0]; !strings.Contains(text, "--"+name) {
				t.Errorf("help %s has no --%s", c.Name, name)
			}
			if _, truth := f.(*cli.BoolFlag); truth && strings.Contains(text, "(default: false)") {
				t.Errorf("help %s: (default: false)", c.Name)
			}
		}
	}
}

// With --json an error is one JSON document on stdout, wherever it arises, with the
// exit code that gpurun ends with. A --json of the training script asks for nothing.
func TestErrorsInJSON(t *testing.T) {
	t.Chdir(t.TempDir())
	for name, text := range map[string]string{"bad.toml": "[job]\nscrip = \"x\"\n", "train.py": ""} {
		testenv.Check(t, os.WriteFile(name, []byte(text), 0o644))
	}
	for _, c := range []struct {
		words       []string
		json        bool
		error, hint string
	}{
		{[]string{"--json", "none.toml"}, true, "no such file", "name an existing train.toml"},
		{[]string{"none.toml", "--json"}, true, "no such file", "name an existing train.toml"},
		{[]string{"--nproc-per-node", "2", "--json", "none.py"}, true, "none.py does not exist", ""},
		{[]string{"--nproc-per-nod=2", "--jso", "none.py"}, true, "none.py does not exist", ""}, // torchrun's abbreviations
		{[]string{"--nonsense", "--json", "train.py"}, true, "unknown flag --nonsense", ""},
		{[]string{"--json", "bad.toml"}, true, "bad.toml:2:1: job.scrip: unknown key", ""},
		{[]string{"plan", "--json", "bad.toml"}, true, "bad.toml:2:1: job.scrip: unknown key", ""},
		{[]string{"--json", "plan", "bad.toml"}, true, "bad.toml:2:1: job.scrip: unknown key", ""},
		{[]string{"recipes", "detect", "--json", "bad.toml"}, true, "bad.toml:2:1: job.scrip: unknown key", ""},
		{[]string{"recipes", "--json", "nonesuch"}, true, `there is no recipe "nonesuch"`, "gpurun recipes lists them"},
		{[]string{"explain", "none", "--json"}, true, "none is not a run directory of gpurun", "journal.jsonl"},
		{[]string{"diagnose", "--json", "none"}, true, "no such file", "diagnose reads"},
		{[]string{"diagnose", "--json", "--exit-code", "soon", "x"}, true, "--exit-code", ""},
		{[]string{"version", "--json", "now"}, true, `unexpected argument "now"`, ""},
		{[]string{"--json", "diagnos", "x"}, true, `"diagnos" is neither a verb`, "did you mean gpurun diagnose?"},
		{[]string{"none.py", "--json"}, false, "none.py does not exist", ""},
		{[]string{"plan", "none.py", "--json"}, false, "none.py does not exist", ""},
		{[]string{"diagnose", "none"}, false, "no such file", ""},
	} {
		code, out, errs := gpurunSays(t, c.words...)
		if code != 2 || !strings.Contains(errs, "gpurun: error: ") || !strings.Contains(errs, c.error) {
			t.Errorf("%q: %d, %q", c.words, code, errs)
		}
		if !c.json {
			if out != "" {
				t.Errorf("%q: on stdout: %q", c.words, out)
			}
			continue
		}
		var got struct {
			Error, Hint string
			Code        *int
		}
		if err := json.Unmarshal([]byte(out), &got); err != nil {
			t.Errorf("%q: %v in %q", c.words, err, out)
			continue
		}
		if !strings.Contains(got.Error, c.error) || !strings.Contains(got.Hint, c.hint) || got.Code == nil || *got.Code != code {
			t.Errorf("%q: %s", c.words, out)
		}
	}
}

// What is mistyped in the place of a verb, or of a file, is answered with what was meant.
func TestMistypedWordGetsASuggestion(t *testing.T) {
	t.Chdir(t.TempDir())
	for _, name := range []string{"train.toml", "train.py"} {
		testenv.Check(t, os.WriteFile(name, nil, 0o644))
	}
	for typed, want := range map[string]string{
		"trian.toml":          "did you mean train.toml?",
		"trian.py":            "did you mean train.py?",
		"--json trian.toml":   "did you mean train.toml?",
		"plan trian.toml":     "did you mean train.toml?",
		"diagnos x":           "did you mean gpurun diagnose?",
		"--json exlpain":      "did you mean gpurun explain?",
		"help recipe":         "did you mean gpurun recipes?",
		"nonesuch":            "gpurun has no such verb (gpurun help lists them)",
		"diagnose --exitcode": "did you mean --exit-code?",
	} {
		code, _, errs := gpurunSays(t, strings.Fields(typed)...)
		if code != 2 || !strings.Contains(errs, "gpurun: hint: "+want) {
			t.Errorf("%s: %d, %s", typed, code, errs)
		}
	}
}

// trainers are jobs, with the most lines of gpurun's own that a run of each has, and what the last twenty lines have to show.
var trainers = map[string]struct {
	flags  []string
	script string
	lines  int
	shows  []string
}{
	"a rescue in place": {nil, `folder=$(dirname "$GPURUN_PROBE_FILE")
echo '{"pid": '$$', "in_place": [{"rung": "checkpointing", "phase": "forward", "step": 7, "times": 1, "last_step": 7, "requested_bytes": 402653184,
	"seconds": 0.35, "elements": 65536, "longest": 4096, "parts": 0, "at": 1732370000.5}]}' >$folder/process.new
mv $folder/process.new $folder/process.json
sleep 1
echo trained`, 6, []string{"rank 0: out of memory in forward at step 7 (tried to allocate 384 MiB); step repeated with activation checkpointing (0.35 s)", "trained in", "1 step repeated in place"}},
	"a relaunch": {nil, `if [ "$2" -gt 4 ]; then echo "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB" >&2; exit 1; fi
echo trained`, 9, []string{"attempt 0: CUDA out of memory", "micro batch 8→4, accumulation 1→2", "trained after 2 attempts", "hint: "}},
	"a failure of the job": {nil, `cat >&2 <<EOF
Traceback (most recent call last):
  File "train.py", line 3, in <module>
    main()
ValueError: no such thing
EOF
exit 1`, 12, []string{"Root Cause", "ValueError: no such thing", "next: 1.", "report: "}},
	"no plan left": {[]string{"--max-attempts", "1"}, `echo "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 8.00 GiB of which 1.00 GiB is free." >&2
exit 1`, 12, []string{"error: attempt 0: CUDA out of memory", "next: 1.", "report: "}},
	"an end without a reason": {nil, `kill -SEGV $$`, 12, []string{"Root Cause", "error: attempt 0: ", "report: "}},
}

// A run has few lines of gpurun's own, and the last twenty lines show what happened, what was changed and what to do.
func TestOutputBudget(t *testing.T) {
	testenv.Python(t)
	const file = `[job]
program = ["sh", "train.sh", "--bs", "8"]
[launch]
nproc_per_node = 1
[knobs]
micro_batch_size            = { arg = "--bs" }
gradient_accumulation_steps = { arg = "--accum", default = 1 }
`
	for name, job := range trainers {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			for name, text := range map[string]string{"train.toml": file, "train.sh": job.script} {
				testenv.Check(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
			}
			out, _ := gpurunIn(dir, append(job.flags, "train.toml")...).CombinedOutput() // several of them fail
			own := 0
			lines := strings.Split(strings.TrimSuffix(string(out), "\n"), "\n")
			for i, line := range lines {
				command := strings.HasPrefix(line, "    ") && i > 0 && strings.HasPrefix(lines[i-1], "gpurun: next: ")
				if strings.HasPrefix(line, "gpurun: ") || command {
					own++
				}
			}
			if own > job.lines || own < 4 {
				t.Errorf("%d lines of gpurun's own, want %d at most:\n%s", own, job.lines, out)
			}
			end := strings.Join(lines[max(0, len(lines)-20):], "\n")
			for _, want := range job.shows {
				if !strings.Contains(end, want) {
					t.Errorf("the last lines lack %q:\n%s", want, end)
				}
			}
			t.Logf("%d lines\n%s", own, out)
		})
	}
}
