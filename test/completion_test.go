package test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
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
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range blocks {
		shell := regexp.MustCompile(`completion (bash|zsh)`).FindStringSubmatch(b.Text)
		if shell != nil && !strings.Contains(inShells[shell[1]], strings.TrimSpace(b.Text)) {
			t.Errorf("docs/install.md: another line for %s: %s", shell[1], b.Text)
		}
	}
	dir := t.TempDir()
	for _, name := range []string{"train.toml", "other.py", ".gpurun/gpt/night-1/journal.jsonl"} {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	path := filepath.Dir(build(t)) + string(filepath.ListSeparator) + os.Getenv("PATH")
	for shell, script := range inShells {
		t.Run(shell, func(t *testing.T) {
			if _, err := exec.LookPath(shell); err != nil {
				t.Skipf("%s is not installed: its completion was not tried", shell)
			}
			file := filepath.Join(t.TempDir(), "ask")
			if err := os.WriteFile(file, []byte(script), 0o600); err != nil {
				t.Fatal(err)
			}
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
