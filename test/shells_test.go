package test

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/gpurun/gpurun/test/testenv"
)

// inShells has, for each shell, a script that prints the completions of each of its arguments: one candidate
// per line, of which the first word counts, and ==== after the candidates of an argument. bash and zsh have
// no command for that: bash's function is called as bash would, and zsh's runs in a terminal, where it
// completes the line.
var inShells = map[string]string{
	"bash": `source <(gpurun completion bash)
for typed; do
    read -ra COMP_WORDS <<<"${typed//=/ = }"
    COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
    _gpurun gpurun
    printf '%s\n' "${COMPREPLY[@]}" ====
done`,
	"zsh": `zmodload zsh/zpty
zpty shell zsh -f -i
zpty -w shell 'PS1="> "; PS2=; stty -echo; unsetopt zle; autoload -Uz compinit; compinit -u -D; source <(gpurun completion zsh); setopt zle; echo rea''dy'
zpty -r -m shell seen '*ready*' || exit 1
for typed; do
    zpty -w -n shell "$typed"$'\t'$'\x01echo "<'$'\x05>"\n'
    zpty -r -m shell seen '*'$'\n''<*>*' || exit 1
    seen=${seen##*$'\n'<}
    print -rl -- "${${seen%%>*}##* }" '===='
done`,
	"fish": `source (gpurun completion fish | psub)
for typed in $argv
    complete -C "$typed"
    echo ====
end`,
}

// inShell has the lines to complete, with words that must be among the completions.
var inShell = [][2]string{
	{"gpurun pla", "plan"}, {"gpurun plan tr", "train.toml"}, {"gpurun python oth", "other.py"}, {"gpurun logs g", "gpt/night-1"},
	{"gpurun --run-d", "--run-dir"}, {"gpurun recipes timm", "timm"},
}

// The completion works in each installed shell.
func TestCompletionInShells(t *testing.T) {
	t.Parallel()
	blocks, err := testenv.Blocks(testenv.Page(t, "docs/install.md"))
	testenv.Check(t, err)
	for _, b := range blocks {
		shell := regexp.MustCompile(`completion (bash|zsh)`).FindStringSubmatch(b.Text)
		if shell != nil && !strings.Contains(inShells[shell[1]], strings.TrimSpace(b.Text)) {
			t.Errorf("docs/install.md: another line for %s: %s", shell[1], b.Text)
		}
	}
	dir := t.TempDir()
	for _, name := range []string{"train.toml", "other.py", ".gpurun/gpt/night-1/journal.jsonl"} {
		testenv.Check(t, os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o700))
		testenv.Check(t, os.WriteFile(filepath.Join(dir, name), nil, 0o600))
	}
	path := filepath.Dir(build(t)) + string(filepath.ListSeparator) + os.Getenv("PATH")
	for shell, script := range inShells {
		t.Run(shell, func(t *testing.T) {
			if _, err := exec.LookPath(shell); err != nil {
				t.Skipf("%s is not installed: its completion was not tried", shell)
			}
			file := filepath.Join(t.TempDir(), "ask")
			testenv.Check(t, os.WriteFile(file, []byte(script), 0o600))
			cmd := exec.Command(shell, file)
			for _, try := range inShell {
				cmd.Args = append(cmd.Args, try[0])
			}
			cmd.Dir, cmd.Env = dir, append(os.Environ(), "PATH="+path, "HOME="+dir, "XDG_CONFIG_HOME="+dir, "TERM=dumb")
			out, err := cmd.Output()
			answers := strings.Split(string(out), "====\n")
			if err != nil || len(answers) != len(inShell)+1 {
				t.Fatalf("%v\n%s", err, out)
			}
			for i, try := range inShell {
				var words []string
				for line := range strings.Lines(answers[i]) {
					words = append(words, strings.Split(strings.TrimSpace(line), "\t")[0])
				}
				if !slices.Contains(words, try[1]) {
					t.Errorf("%s: %q, want %q", try[0], words, try[1])
				}
			}
		})
	}
}

// shells are launch scripts, with the expected exit code of gpurun. $T trains, and its argument selects its
// end: ok, oom, fail (with its own exception), load (out of memory before the training), killed, slow
// and slowfail (after a second), exit and leave (with 3), interrupt, caught (well, after an exception that it
// prints), eval (without a step). $P is Python.
var shells = map[string]struct {
	text string
	want int
}{
	"pipe into tee":                 {`$T oom 2>&1 | tee log`, 12},
	"pipe into tee that ends well":  {`$T ok 2>&1 | tee log`, 0},
	"pipe of an error of the job":   {`$T fail 2>&1 | tee log`, 1},
	"pipe while loading":            {`$T load | cat`, 12},
	"pipefail":                      {"set -o pipefail\n$T oom | cat", 12},
	"set -e does not see a pipe":    {"set -e\n$T oom | cat\necho done", 12},
	"and":                           {`$T oom && echo done`, 12},
	"and that ends well":            {`$T ok && echo done`, 0},
	"semicolon":                     {`$T fail; echo done`, 1},
	"subshell":                      {`( cd . ; $T oom ); exit 0`, 12},
	"group":                         {`{ $T oom; } 2>&1 | cat`, 12},
	"time":                          {`time $T fail | cat`, 1},
	"script":                        {`script -qc "$T oom" /dev/null`, 12},
	"nohup":                         {`nohup $T oom >log 2>&1; true`, 12},
	"process substitution":          {"$T oom > >(tee log) 2>&1\nwait\ntrue", 12},
	"or that retries":               {`$T oom || $T ok`, 0},
	"or true":                       {`$T oom || true`, 12},
	"or that fails twice":           {`$T oom || $T fail || true`, 1},
	"loop until it is well":         {"for how in oom oom ok; do $T $how && break; done; true", 0},
	"until loop":                    {"n=0; until $T $([ $n -gt 1 ] && echo ok || echo oom); do n=$((n+1)); done | cat", 0},
	"loop whose last one fails":     {"for how in ok ok oom; do $T $how; done; true", 12},
	"function":                      {"train() { $T \"$@\"; }\ntrain oom | cat", 12},
	"here document":                 {"bash <<EOF | cat\n$T oom\nEOF", 12},
	"input from a here document":    {"$P train.py <<EOF | cat\noom\nEOF", 12},
	"xargs":                         {`echo oom | xargs -n1 $T | cat`, 12},
	"timeout":                       {`timeout 60 $T fail | cat`, 1},
	"env":                           {`env A=1 $T oom | cat`, 12},
	"exec in a subshell":            {`(exec $T oom) | cat`, 12},
	"exec":                          {`exec $T oom`, 12},
	"or that becomes the retry":     {`$T oom || exec $T ok`, 0},
	"a check, then exec":            {"$T check\nexec $T ok", 0},
	"exec after a good one":         {"$T ok\nexec $T oom", 12},
	"background and wait":           {"$T oom &\nwait\ntrue", 12},
	"background that ends well":     {"$T ok &\nwait $!", 0},
	"trap that hides the end":       {"trap 'exit 0' EXIT\n$T oom", 12},
	"not":                           {`! $T fail`, 1},
	"if":                            {`if $T oom; then echo well; fi`, 12},
	"eval":                          {`eval "$T oom | cat"`, 12},
	"command substitution":          {"out=$($T oom)\necho \"$out\"", 12},
	"another shell":                 {`sh -c "$T oom | cat"`, 12},
	"setsid":                        {`setsid -w $T oom | cat`, 12},
	"stdbuf and nice":               {`nice -n 1 stdbuf -oL $T oom | cat`, 12},
	"a launcher":                    {`$P torchrun train.py oom 2>&1 | tee log`, 12},
	"a launcher that ends well":     {`$P torchrun train.py ok 2>&1 | tee log`, 0},
	"children of multiprocessing":   {`$P spawn.py oom | cat`, 12},
	"a check before":                {`$T check || true; $T ok`, 0},
	"a check after":                 {`$T ok; $T check; true`, 0},
	"a check alone":                 {`$T check | cat`, 1},
	"a study whose trial failed":    {`$P study.py ok oom | cat`, 0},
	"a study without a good trial":  {`$P study.py oom oom`, 12},
	"killed after a failed attempt": {`$T oom; $T killed; true`, 12},

	"hook lost":                     {"export PYTHONPATH=src\n$T fail 2>&1 | tee log", 1},
	"hook lost, out of memory":      {"PYTHONPATH=src $T oom 2>&1 | tee log; echo done", 12},
	"hook lost, ends well":          {"unset PYTHONPATH\n$T caught 2>&1 | tee log", 0},
	"hook lost, retry":              {"export PYTHONPATH=src\n{ $T fail || $T ok; } 2>&1 | cat", 0},
	"environment cleared":           {`env -i $T oom 2>&1 | cat`, 12},
	"left in the background":        {`nohup $T slow >log 2>&1 & echo started`, 0},
	"left with a failure":           {`setsid -f $T slowfail >log 2>&1`, 1},
	"left by a subshell":            {`( $T slowfail >log 2>&1 & )`, 1},
	"killed":                        {`$T killed | tee log`, 1},
	"ended by sys.exit":             {`$T exit | tee log`, 1},
	"ended at once":                 {`$T leave | tee log`, 1},
	"interrupted":                   {`$T interrupt | tee log`, 75},
	"a driver":                      {`$P driver.py fail | tee log`, 1},
	"no program":                    {`$P nosuch.py 2>&1 | tee log`, 1},
	"no module":                     {`$P -m nosuch.train 2>&1 | tee log`, 1},
	"no command":                    {`nosuchrun train.py 2>&1 | tee log`, 1},
	"no syntax":                     {"echo 'for x in' >broken.py\n$P broken.py 2>&1 | tee log", 1},
	"no import":                     {"echo 'import nosuchlib' >broken.py\n$P broken.py 2>&1 | tee log", 1},
	"no such argument":              {"echo 'import argparse; argparse.ArgumentParser().parse_args()' >usage.py\n$P usage.py --lr 1 2>&1 | tee log", 1},
	"no command, then the training": {"nosuch-smi\n$T ok", 0},
	"an evaluation after":           {`$T fail; $T eval; true`, 1},
	"another script after":          {"cp train.py second.py\n$T fail; $P second.py ok; true", 1},
	"two at once":                   {"$T slowfail & $T slow & wait", 1},
	"two at once, the other one":    {"$T slow & $T slowfail & wait; true", 1},
	"two at once that end well":     {"$T ok & $T ok & wait", 0},
}

// A shell that ends with 0 does not hide that its training failed. No failure is reported if a later attempt
// ended well.
func TestShellsHideNoFailure(t *testing.T) {
	t.Parallel()
	var wrong atomic.Int32
	t.Run("shells", func(t *testing.T) {
		for i, name := range slices.Sorted(maps.Keys(shells)) {
			if !oneIn(5, i) {
				continue
			}
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				shell := shells[name]
				if got, said := endOfShell(t, shell.text); got != shell.want {
					wrong.Add(1)
					t.Errorf("exit code %d, want %d, of\n%s\n%s", got, shell.want, shell.text, said)
				}
			})
		}
	})
	t.Logf("%d shells, wrong ends: %d", len(shells), wrong.Load())
}

// endOfShell runs gpurun with a launch script, and returns its exit code and output.
func endOfShell(t *testing.T, text string) (int, string) {
	t.Helper()
	dir := t.TempDir()
	testenv.Check(t, os.CopyFS(dir, os.DirFS(filepath.Join("testdata", "endings"))))
	interpreter := testenv.Python(t)
	script := fmt.Sprintf("P=%s\nT=\"%[1]s train.py\"\n%s\n", interpreter, text)
	if strings.HasPrefix(text, "script ") {
		if _, err := exec.LookPath("script"); err != nil {
			t.Skip("there is no script here")
		}
	}
	testenv.Check(t, os.WriteFile(filepath.Join(dir, "launch.sh"), []byte(script), 0o644))
	var said bytes.Buffer
	cmd := exec.Command(build(t), "bash", "launch.sh")
	cmd.Dir, cmd.Stdout, cmd.Stderr = dir, &said, &said
	cmd.Env = append(os.Environ(), "XDG_STATE_HOME="+dir, "PYTHON_EXEC="+interpreter)
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return cmd.ProcessState.ExitCode(), said.String()
}
