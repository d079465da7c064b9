package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gpurun/gpurun/test/testenv"
)

// oddNames are names of files that a shell, or a program, reads in its own way.
var oddNames = []string{"a b", "it's", `say "x"`, "$HOME", "two\nlines", "-dash", "~", "é;x&y", "back\\slash", "*", "#no", "tab\there", "\u202egnp"}

var (
	// ownLine is a command on a line of its own.
	ownLine = regexp.MustCompile(`(?m)^ {4}((?:gpurun|sed|tail|git) .*)$`)
	// inSentence is a command in a sentence.
	inSentence = regexp.MustCompile(`(gpurun (?:resume|status|logs|explain|report|plan)(?: -f| --fresh)? .+?) (?:shows|continues|starts|follows|why)`)
)

// Every command that gpurun prints can be pasted into a shell, whatever the names are: each path in it exists, and the job's own words
// arrive as they were typed.
func TestPrintedCommandsCanBePasted(t *testing.T) {
	for i, name := range oddNames {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			write := func(name, text string) {
				testenv.Check(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
			}
			write(name+".sh", "echo first; echo broken >&2; exit 3\n")
			write("wait.sh", "echo here; exec sleep 60\n")
			failed := "./" + name
			run := func(args ...string) string {
				out, _ := gpurunIn(dir, args...).CombinedOutput()
				return string(out)
			}
			said := run("--run-dir", failed, "sh", "./"+name+".sh", name)
			said += run("status", failed) + run("verdict", failed) + run("explain", failed) + run("resume", failed) + run("resume", "--fresh", failed)
			said += run("report", failed) + run("init", "sh", "./"+name+".sh")

			killed := "./" + name + ".killed"
			waiting := gpurunIn(dir, "--run-dir", killed, "sh", "wait.sh")
			testenv.Check(t, waiting.Start())
			for range 100 {
				if said := run("status", killed); strings.Contains(said, "attempt 0") {
					break
				}
				time.Sleep(50 * time.Millisecond)
			}
			said += run("resume", killed) + run("verdict", killed)
			_ = waiting.Process.Kill()
			_ = waiting.Wait()
			said += run("status", killed) + run("verdict", killed)

			var lines []string
			for _, pattern := range []*regexp.Regexp{ownLine, inSentence} {
				for _, m := range pattern.FindAllStringSubmatch(said, -1) {
					lines = append(lines, m[1])
				}
			}
			slices.Sort(lines)
			lines = slices.Compact(lines)
			if len(lines) < 8 {
				t.Errorf("only %d commands in\n%s", len(lines), said)
			}
			for _, line := range lines {
				checkPasted(t, dir, name, line)
			}
		})
	}
}

func gpurunIn(dir string, args ...string) *exec.Cmd {
	cmd := exec.Command("gpurun", args...)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "XDG_STATE_HOME="+filepath.Join(dir, ".state"))
	for _, name := range placeVariables {
		cmd.Env = append(cmd.Env, name+"=")
	}
	return cmd
}

// checkPasted runs a line in a shell in which gpurun only prints its words, and compares them.
func checkPasted(t *testing.T, dir, name, line string) {
	t.Helper()
	script := "gpurun() { printf 'word %s\\000' \"$@\"; }\n" + line + "\n"
	for _, shell := range []string{"sh", "bash"} {
		cmd := exec.Command(shell, "-c", script)
		cmd.Dir = dir
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Errorf("%s: %s: %v\n%s", shell, line, err, out)
			continue
		}
		if !strings.HasPrefix(line, "gpurun ") {
			continue // it has read the file
		}
		words := strings.Split(strings.TrimSuffix(string(out), "\x00"), "\x00")
		named := false
		for _, word := range words {
			word, ok := strings.CutPrefix(word, "word ")
			path := word
			if !filepath.IsAbs(path) {
				path = filepath.Join(dir, path)
			}
			_, err := os.Stat(path)
			named = named || ok && err == nil
			if ok && err != nil && strings.Contains(word, name) && word != name { // the name alone is the job's own argument
				t.Errorf("%s: %s: %v", shell, line, err)
			}
		}
		if !named {
			t.Errorf("%s: %s: no word names a file: %q", shell, line, words)
		}
	}
}

// TestRealWrappers runs a job behind the wrappers themselves that this machine has, or
// that are in the folder GPURUN_TEST_WRAPPERS, such as the bin of an environment into
// which "pip install uv poetry" has put them. TestScripts/wrappers has fakes.
func TestRealWrappers(t *testing.T) {
	path := os.Getenv("GPURUN_TEST_WRAPPERS") + ":" + os.Getenv("PATH")
	t.Setenv("PATH", path)
	interpreter := testenv.Python(t)
	for _, c := range []struct{ name, line string }{
		{"uv", "uv run --no-project --offline --python " + interpreter + " train.py"},
		{"uv", "uv run --no-project --offline --python " + interpreter + " python train.py"},
		{"uv", "uv run --no-project --offline --python " + interpreter + " -m train"},
		{"uv", "uv run --no-project --offline --python " + interpreter + " torchrun --nproc-per-node 2 train.py"},
		{"poetry", "poetry run python train.py"},
		{"numactl", "numactl --localalloc python3 train.py"},
		{"time", "time python3 train.py"},
	} {
		t.Run(c.line, func(t *testing.T) {
			if _, err := exec.LookPath(c.name); err != nil {
				t.Skipf("this machine has no %s; set GPURUN_TEST_WRAPPERS to a folder that has it", c.name)
			}
			dir := t.TempDir()
			for name, text := range map[string]string{
				"train.py": "import os, sys\nimport torch\nfrom transformers import HfArgumentParser, TrainingArguments\n" +
					"args = dict(zip(sys.argv[1::2], sys.argv[2::2]))\n" +
					"if int(args['--per_device_train_batch_size']) > 4:\n" +
					"    sys.exit('RuntimeError: CUDA out of memory. Tried to allocate 20.00 MiB (GPU 0; 15.90 GiB total capacity; 14.80 GiB already allocated; 2.81 MiB free; 15.00 GiB reserved in total by PyTorch)')\n" +
					"print('trained with', args['--per_device_train_batch_size'], 'as rank', os.environ.get('RANK'))\n",
				"torch.py": "", "transformers.py": "HfArgumentParser = TrainingArguments = None\n",
				"pyproject.toml": "[project]\nname = \"x\"\nversion = \"1\"\nrequires-python = \">=3.8\"\n[tool.poetry]\npackage-mode = false\n",
			} {
				testenv.Check(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644))
			}
			words := append([]string{"--run-dir", "run", "--never", "checkpointing,precision"}, strings.Fields(c.line)...)
			words = append(words, "--output_dir", "out", "--per_device_train_batch_size", "8")
			cmd := exec.Command(os.Args[0], "-test.run=TestRealWrappersGpurun", "--")
			cmd.Args = append(cmd.Args, words...)
			cmd.Dir, cmd.Env = dir, append(os.Environ(), "GPURUN_TEST_MAIN=1", "POETRY_VIRTUALENVS_CREATE=false", "VIRTUAL_ENV=", "CONDA_PREFIX=", "CUDA_VISIBLE_DEVICES=")
			out, err := cmd.CombinedOutput()
			want := "trained with 4 as rank None"
			if strings.Contains(c.line, "torchrun") {
				want = "trained with 4 as rank 1"
			}
			if err != nil || !strings.Contains(string(out), want) {
				t.Errorf("%v\n%s", err, out)
			}
		})
	}
}

// TestRealWrappersGpurun is gpurun itself, where TestRealWrappers starts it.
func TestRealWrappersGpurun(t *testing.T) {
	if os.Getenv("GPURUN_TEST_MAIN") == "" {
		t.Skip("started by TestRealWrappers")
	}
	for i, w := range os.Args {
		if w == "--" {
			os.Unsetenv("GPURUN_TEST_MAIN")
			os.Exit(Main(append([]string{"gpurun"}, os.Args[i+1:]...), os.Stdin, os.Stdout, os.Stderr))
		}
	}
}
