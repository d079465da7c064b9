package main

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"

	"github.com/gpurun/gpurun/test/testenv"
)

// commandPages are the pages whose commands are run: README.md and those of docs.
func commandPages(t *testing.T) []string {
	return slices.DeleteFunc(pages(t), func(name string) bool { return name != "README.md" && !strings.HasPrefix(name, "docs/") })
}

// Every command in a block of code on a page is run as it is printed, and prints what the page shows, unless a mark
// in the line above the block names another test that runs it, or why it is not run.
func TestCommandsOfThePagesRun(t *testing.T) {
	for _, name := range commandPages(t) {
		t.Run(path.Base(name), func(t *testing.T) {
			t.Parallel()
			blocks, err := testenv.Blocks(testenv.Page(t, name))
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			p := newPageRunner(t, path.Base(name))
			for _, b := range blocks {
				if err := p.check(t, b); err != nil {
					t.Errorf("%s:%d: %v", name, b.Line, err)
				}
			}
		})
	}
}

// pageRunner runs the commands of a page, one after the other, in a folder.
type pageRunner struct {
	dir string
	env []string
}

// newPageRunner prepares a folder with the files of testdata/pages/NAME.txtar, and runs its first part as a shell
// script.
func newPageRunner(t *testing.T, name string) *pageRunner {
	t.Helper()
	p := &pageRunner{dir: t.TempDir()}
	p.env = append(os.Environ(), "HOME="+p.dir, "PATH="+filepath.Join(p.dir, "bin")+":"+os.Getenv("PATH"), "XDG_STATE_HOME="+filepath.Join(p.dir, ".state"),
		"PYTHON_EXEC="+testenv.Python(t), "TERM=dumb")
	for _, name := range placeVariables {
		p.env = append(p.env, name+"=")
	}
	archive, err := txtar.ParseFile(filepath.Join("testdata", "pages", strings.TrimSuffix(name, ".md")+".txtar"))
	if errors.Is(err, os.ErrNotExist) {
		return p
	} else if err != nil {
		t.Fatal(err)
	}
	for _, f := range archive.Files {
		writeFile(t, filepath.Join(p.dir, f.Name), string(f.Data))
	}
	if out, err := p.run(t, string(archive.Comment)); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return p
}

// run runs lines in a shell, and returns what they print.
func (p *pageRunner) run(t *testing.T, lines string) (string, error) {
	cmd := exec.CommandContext(t.Context(), "bash", "-e", "-o", "pipefail", "-c", lines)
	cmd.Dir, cmd.Env = p.dir, p.env
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()
	return out.String(), err
}

// check runs the commands of a block.
func (p *pageRunner) check(t *testing.T, b testenv.Block) error {
	reason, notRun := b.Mark("not run")
	by, elsewhere := b.Mark("run by")
	switch {
	case b.Lang != "sh" && b.Lang != "bash" && b.Lang != "console":
		if line := regexp.MustCompile(`(?m)^(\$ .*|gpurun .*)`).FindString(b.Text); line != "" {
			return fmt.Errorf("a command in a block of %s: %s", b.Lang, line)
		}
		return nil
	case notRun:
		if len(reason) < 10 {
			return fmt.Errorf("it is not run, for no reason: %q", reason)
		}
		return nil
	case elsewhere:
		if !allTests(t)[by] {
			return fmt.Errorf("it is run by %q, which is no test", by)
		}
		return nil
	case b.Lang == "console":
		for _, command := range strings.Split("\n"+b.Text, "\n$ ")[1:] {
			line, shown, _ := strings.Cut(command, "\n")
			if err := p.compare(t, b, line, shown); err != nil {
				return err
			}
		}
		return nil
	}
	return p.compare(t, b, b.Text, "…")
}

// compare runs lines, and compares their exit code and output with what the block shows.
func (p *pageRunner) compare(t *testing.T, b testenv.Block, lines, shown string) error {
	code, _ := b.Mark("exits")
	_, vary := b.Mark("numbers vary")
	printed, err := p.run(t, lines)
	got := "0"
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		got = fmt.Sprint(exit.ExitCode())
	} else if err != nil {
		return err
	}
	if got != cmp.Or(code, "0") {
		return fmt.Errorf("%sends with %s:\n%s", lines, got, printed)
	}
	return testenv.Shown(shown, printed, vary)
}

// The check finds a new command that does not run, another output, and blocks in which it would find no command.
func TestCommandsOfThePagesRunFinds(t *testing.T) {
	p := newPageRunner(t, "none")
	for text, want := range map[string]string{
		"```sh\ngpurun nothing.py\n```":                                                   "ends with 2",
		"```console\n$ gpurun version\nversion none\n```":                                 "and printed is",
		"```console\n$ gpurun version\n…\n$ gpurun nothing.py\n…\n```":                    "ends with 2",
		"<!-- not run -->\n```sh\ngpurun nothing.py\n```":                                 "for no reason",
		"<!-- run by TestNothing -->\n```sh\ngpurun nothing.py\n```":                      "which is no test",
		"x\n\n    gpurun nothing.py\n":                                                    "without a fence",
		"```\ngpurun nothing.py\n```":                                                     "without a language",
		"```text\ngpurun nothing.py\n```":                                                 "a command in a block of text",
		"<!-- exits 2 -->\n```sh\ngpurun nothing.py\n```":                                 "",
		"<!-- not run: it needs a GPU of another maker -->\n```sh\ngpurun x.py\n```":      "",
		"<!-- numbers vary -->\n```console\n$ echo a 12.5 b; echo; echo c\na 7 …\n…\n```": "",
	} {
		blocks, err := testenv.Blocks(text)
		if err == nil {
			err = p.check(t, blocks[0])
		}
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}
