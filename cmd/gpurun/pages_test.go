package main

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/rogpeppe/go-internal/txtar"

	"github.com/gpurun/gpurun/launcher/job"
	"github.com/gpurun/gpurun/test/testenv"
)

// commandPages are the pages whose commands are run: README.md, and those of docs and the examples.
func commandPages(t *testing.T) []string {
	names := slices.DeleteFunc(pages(t), func(name string) bool { return name != "README.md" && !strings.HasPrefix(name, "docs/") })
	return append(names, examplePages(t)...)
}

// examplePages are the README.md files of the examples.
func examplePages(t *testing.T) (names []string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(testenv.Root(t), "examples", "*", "README.md"))
	if err != nil || len(files) == 0 {
		t.Fatalf("%d examples, %v", len(files), err)
	}
	for _, file := range files {
		names = append(names, strings.TrimPrefix(file, testenv.Root(t)+string(filepath.Separator)))
	}
	return names
}

// Every command in a block of code on a page is run as it is printed, and prints what the page shows, and every output
// that a page shows is one that a test expects. A comment in the line above a block names the test, if it is another
// one, or why the block is not run.
func TestCommandsOfThePagesRun(t *testing.T) {
	tests := allTests(t)
	for _, name := range commandPages(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			blocks, err := testenv.Blocks(testenv.Page(t, name))
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			p := newPageRunner(t, name, tests)
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
	page  string
	tests map[string][]string // the files of all tests
	dir   string
	env   []string
}

// newPageRunner prepares a folder with the files of testdata/pages/NAME.txtar, and runs its first part as a shell
// script.
func newPageRunner(t *testing.T, page string, tests map[string][]string) *pageRunner {
	t.Helper()
	p := &pageRunner{page: page, tests: tests, dir: t.TempDir()}
	p.env = append(os.Environ(), "HOME="+p.dir, "PATH="+filepath.Join(p.dir, "bin")+":"+os.Getenv("PATH"), "XDG_STATE_HOME="+filepath.Join(p.dir, ".state"),
		"PYTHON_EXEC="+testenv.Python(t), "TERM=dumb")
	for _, name := range placeVariables {
		p.env = append(p.env, name+"=")
	}
	name := strings.TrimSuffix(strings.TrimPrefix(page, "docs/"), ".md")
	archive, err := txtar.ParseFile(filepath.Join("testdata", "pages", name+".txtar"))
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

// inText finds a command of gpurun, or an output, in a block that is not for a shell.
var inText = regexp.MustCompile(`(?m)^\$ .*|.*\bgpurun[", ] *[^\s{].*`)

// check runs the commands of a block, or checks the test that does.
func (p *pageRunner) check(t *testing.T, b testenv.Block) error {
	reason, notRun := b.Mark("not run")
	by, elsewhere := b.Mark("run by")
	_, shown := b.Mark("shown by")
	switch {
	case notRun:
		if len(reason) < 10 {
			return fmt.Errorf("it is not run, for no reason: %q", reason)
		}
		return nil
	case elsewhere:
		return p.readBy(by)
	case shown:
		return p.shownBy(b)
	case b.Lang == "text":
		return errors.New("a text that no test expects: name one, <!-- shown by TestName -->")
	case b.Lang != "sh" && b.Lang != "bash" && b.Lang != "console":
		if line := inText.FindString(b.Text); line != "" {
			return fmt.Errorf("a command in a block of %s: %s", b.Lang, line)
		}
		return nil
	case b.Lang == "console" && !strings.HasPrefix(b.Text, "$ "):
		return fmt.Errorf("a block of console without a command: %s", b.Text)
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

// readBy checks that a test which is to run a block reads the page.
func (p *pageRunner) readBy(test string) error {
	if p.tests[test] == nil {
		return fmt.Errorf("it is run by %q, which is no test", test)
	}
	for _, file := range p.tests[test] {
		text, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		if regexp.MustCompile(`"(docs/)?` + regexp.QuoteMeta(strings.TrimPrefix(p.page, "docs/")) + `"`).Match(text) {
			return nil
		}
	}
	return fmt.Errorf("it is run by %s, which does not read %s", test, p.page)
}

// shownBy checks that each line of a block is in the texts that its tests expect.
func (p *pageRunner) shownBy(b testenv.Block) error {
	var texts []string
	for _, mark := range b.Marks {
		test, found := strings.CutPrefix(mark, "shown by ")
		if !found {
			continue
		}
		if p.tests[test] == nil {
			return fmt.Errorf("it is shown by %q, which is no test", test)
		}
		for _, file := range p.tests[test] {
			more, err := literalTexts(file)
			if err != nil {
				return err
			}
			texts = append(texts, more...)
		}
	}
	for line := range strings.Lines(b.Text) {
		line = strings.TrimSpace(regexp.MustCompile(`^gpurun: ((error|warning|hint): )?`).ReplaceAllString(line, ""))
		if line == "" || line == "…" || strings.HasPrefix(line, "$ ") {
			continue
		}
		if !slices.ContainsFunc(texts, func(text string) bool { return expects(text, line) }) {
			return fmt.Errorf("no text of its tests has %q", line)
		}
	}
	return nil
}

// expects reports whether a text of a test has a line that a page shows, but for its numbers. "…" on the page is for
// any part of the text, "…" in the text for any part of the line.
func expects(text, line string) bool {
	text, line = numberless(text), numberless(line)
	pattern := func(text string) string { return strings.ReplaceAll(regexp.QuoteMeta(text), "…", ".*") }
	if regexp.MustCompile(pattern(line)).MatchString(text) {
		return true
	}
	return strings.Contains(text, "…") && len(text) > 40 && regexp.MustCompile("^"+pattern(text)+"$").MatchString(line)
}

// numberless returns a text with 0 for each number, and single blanks.
func numberless(text string) string {
	text = regexp.MustCompile(`\d+([.,]\d+)*`).ReplaceAllString(text, "0")
	return regexp.MustCompile(` +`).ReplaceAllString(text, " ")
}

// literalTexts returns the texts that a file has as literals, with "…" for what is not one in a sum of texts.
func literalTexts(file string) (all []string, err error) {
	f, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
	if err != nil {
		return nil, err
	}
	var text func(e ast.Expr) string
	text = func(e ast.Expr) string {
		switch e := e.(type) {
		case *ast.BasicLit:
			if s, err := strconv.Unquote(e.Value); err == nil && e.Kind == token.STRING {
				return s
			}
		case *ast.BinaryExpr:
			if e.Op == token.ADD {
				return text(e.X) + text(e.Y)
			}
		}
		return "…"
	}
	ast.Inspect(f, func(n ast.Node) bool {
		if e, ok := n.(ast.Expr); ok && text(e) != "…" {
			all = append(all, text(e))
		}
		return true
	})
	return all, nil
}

// The messages that docs/troubleshooting.md quotes are in the source.
func TestQuotedMessagesExist(t *testing.T) {
	var source strings.Builder
	for _, p := range packages(t) {
		for _, name := range p.GoFiles {
			texts, err := literalTexts(filepath.Join(p.Dir, name))
			testenv.Check(t, err)
			source.WriteString(strings.Join(texts, "\n"))
		}
	}
	others := regexp.MustCompile(`^(gpurun (resume|version|diagnose)|man) |GLIBC|^command not found`) // commands, and messages of other programs
	seen := 0
	for _, row := range regexp.MustCompile(`(?m)^\| ([^|]+) \|`).FindAllStringSubmatch(testenv.Page(t, "docs/troubleshooting.md"), -1) {
		for _, quoted := range regexp.MustCompile("`([^`]+ [^`]+)`").FindAllStringSubmatch(row[1], -1) {
			if others.MatchString(quoted[1]) {
				continue
			}
			seen++
			for _, part := range regexp.MustCompile(`…|: | \(|"[^"]*"`).Split(quoted[1], -1) { // what is printed in between varies
				if part = strings.TrimSpace(part); strings.Contains(part, " ") && !strings.Contains(source.String(), part) {
					t.Errorf("docs/troubleshooting.md quotes %q, and no text of the source has %q", quoted[1], part)
				}
			}
		}
	}
	if seen < 8 {
		t.Errorf("only %d messages were found", seen)
	}
}

// The check finds a new command that does not run, another output, and blocks in which it would find no command.
func TestCommandsOfThePagesRunFinds(t *testing.T) {
	p := newPageRunner(t, "docs/none.md", allTests(t))
	for text, want := range map[string]string{
		"```sh\ngpurun nothing.py\n```":                                               "ends with 2",
		"```console\n$ gpurun version\nversion none\n```":                             "and printed is",
		"```console\n$ gpurun version\n…\n$ gpurun nothing.py\n…\n```":                "ends with 2",
		"<!-- not run -->\n```sh\ngpurun nothing.py\n```":                             "for no reason",
		"<!-- run by TestNothing -->\n```sh\ngpurun nothing.py\n```":                  "which is no test",
		"x\n\n    gpurun nothing.py\n":                                                "without a fence",
		"```\ngpurun nothing.py\n```":                                                 "without a language",
		"```text\nrank 1 failed\n```":                                                 "a text that no test expects",
		"```yaml\nscript:\n  - gpurun nothing.py\n```":                                "a command in a block of yaml",
		"```console\ngpurun version\n```":                                             "without a command",
		"<!-- run by TestQuickstart -->\n```sh\ngpurun nothing.py\n```":               "which does not read docs/none.md",
		"<!-- shown by TestNothing -->\n```text\nrank 1 failed\n```":                  "which is no test",
		"<!-- shown by TestPrices -->\n```text\nmicro batch 16→9 saved a little\n```": "no text of its tests has",
		"<!-- shown by TestPrices -->\n```text\ngpurun:   micro batch 64→8 saved 9.9 GiB (22.4→12) for the same step time\n```": "",
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

// The train.toml files of README.md and of the manual can be run; those of a part have a job in front.
func TestDocumentedTrainFiles(t *testing.T) {
	seen := 0
	for _, name := range commandPages(t) {
		blocks, err := testenv.Blocks(testenv.Page(t, name))
		testenv.Check(t, err)
		for _, b := range blocks {
			if b.Lang != "toml" || name == "docs/administration.md" { // which has configurations of a site
				continue
			}
			seen++
			if !strings.Contains(b.Text, "[job]") {
				b.Text = "[job]\nscript = \"train.py\"\n" + b.Text
			}
			dir := t.TempDir()
			writeFile(t, filepath.Join(dir, "train.py"), "")
			writeFile(t, filepath.Join(dir, "train.toml"), b.Text)
			if _, _, err := job.Open(t.Context(), []string{filepath.Join(dir, "train.toml")}, os.Environ(), dir); err != nil {
				t.Errorf("%s:%d: %v", name, b.Line, err)
			}
		}
	}
	if seen < 10 {
		t.Errorf("only %d files were found", seen)
	}
}

// What a reader sees first of README.md fits on a terminal of 80 columns.
func TestREADMEBeginsNarrow(t *testing.T) {
	first, _, found := strings.Cut(testenv.Page(t, "README.md"), "\n## ")
	if n := strings.Count(first, "\n"); !found || n > 32 {
		t.Errorf("README.md has %d lines before its first headline, want 32 at most", n)
	}
	for line := range strings.Lines(first) {
		if n := utf8.RuneCountInString(strings.TrimSpace(line)); n > 80 {
			t.Errorf("README.md: %d columns: %s", n, line)
		}
	}
}

// make test installs no package of the system that the README does not name.
func TestPackagesForTestsAreInTheREADME(t *testing.T) {
	_, recipe, found := strings.Cut(testenv.Page(t, "Makefile"), "\ntest:")
	if !found {
		t.Fatal("the Makefile has no target test")
	}
	recipe, _, _ = strings.Cut(recipe, "\n\n")
	readme, seen := testenv.Page(t, "README.md"), 0
	// What is quoted is what a function is given.
	install := regexp.MustCompile(`(?:apt_install|apt-get\b.* install)((?: [\w$.+-]+)+)`)
	for _, script := range regexp.MustCompile(`\.ci/[\w.]+`).FindAllString(recipe, -1) {
		for line := range strings.Lines(testenv.Page(t, script)) {
			m := install.FindStringSubmatch(line)
			if m == nil || strings.Contains(line, "die ") { // which only names the command
				continue
			}
			for _, name := range strings.Fields(m[1]) {
				if strings.HasPrefix(name, "-") {
					continue // a flag
				}
				if seen++; !strings.Contains(readme, "`"+name+"`") {
					t.Errorf("%s installs %s, which README.md does not name", script, name)
				}
			}
		}
	}
	if seen < 3 {
		t.Errorf("only %d packages were looked at", seen)
	}
}
