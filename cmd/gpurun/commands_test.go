package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/urfave/cli/v2"
	"mvdan.cc/sh/v3/syntax"

	"github.com/gpurun/gpurun/launcher/estimate"
	"github.com/gpurun/gpurun/launcher/job"
	"github.com/gpurun/gpurun/launcher/manual"
	"github.com/gpurun/gpurun/test/testenv"
)

// inlineCommand is one between backticks.
var inlineCommand = regexp.MustCompile("`(gpurun [^`\n]+)`")

// shownCommands are the command lines of gpurun that a page shows between backticks and in
// blocks of code: each from "gpurun" on, whatever is in front of it. Forms with choices are
// left out, and so is what gpurun prints.
func shownCommands(t *testing.T, text string) (all [][]string) {
	t.Helper()
	for _, m := range inlineCommand.FindAllStringSubmatch(text, -1) {
		words := strings.Fields(strings.Split(m[1], " > ")[0])
		whole := len(words) > 2 || strings.Contains(m[1], ".") // else it names a verb
		if whole && !strings.ContainsAny(m[1], "[<…|\\") && !strings.Contains(m[1], "VERB") && words[1] != "srun" {
			all = append(all, words)
		}
	}
	fenced := false
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, "```") {
			fenced = !fenced
		}
		code, indented := strings.CutPrefix(line, "    ")
		if fenced {
			code = line
		}
		code = strings.TrimSpace(strings.TrimPrefix(strings.TrimSpace(code), "$ "))
		code, _, _ = strings.Cut(code, "    # ")
		if !fenced && !indented || !strings.Contains(code, "gpurun ") || strings.ContainsAny(code, "[<") {
			continue
		}
		file, err := syntax.NewParser().Parse(strings.NewReader(code), "")
		if err != nil {
			continue // a part of a longer line
		}
		syntax.Walk(file, func(n syntax.Node) bool {
			if call, ok := n.(*syntax.CallExpr); ok {
				words := literals(call)
				if at := slices.Index(words, "gpurun"); at == 0 || at > 0 && slices.Contains(before, words[0]) {
					all = append(all, words[at:])
				}
			}
			return true
		})
	}
	return all
}

// before are programs that are put in front of gpurun.
var before = []string{"srun", "exec", "nohup", "time"}

// literals are the words of a call as they are without a shell; a variable is a word.
func literals(call *syntax.CallExpr) (words []string) {
	for _, w := range call.Args {
		var b strings.Builder
		syntax.Walk(w, func(n syntax.Node) bool {
			switch n := n.(type) {
			case *syntax.Lit:
				b.WriteString(n.Value)
			case *syntax.SglQuoted:
				b.WriteString(n.Value)
			case *syntax.ParamExp, *syntax.CmdSubst:
				b.WriteString("x")
				return false
			}
			return true
		})
		words = append(words, b.String())
	}
	return words
}

// accepted is what the reader of gpurun's command line says of a line that a page shows;
// nothing is started. Files that it names are there.
func accepted(t *testing.T, words []string) error {
	t.Helper()
	dir := t.TempDir()
	for _, w := range words {
		path := filepath.Join(dir, w)
		switch filepath.Ext(w) {
		case ".py", ".json", ".out", ".yaml", ".sh":
			writeFile(t, path, "")
		case ".toml":
			writeFile(t, path, "[job]\nscript = \"train.py\"\n")
			writeFile(t, filepath.Join(filepath.Dir(path), "train.py"), "")
		}
	}
	writeFile(t, filepath.Join(dir, "train.py"), "")
	t.Chdir(dir)
	read := func(ctx context.Context, args []string) error {
		_, _, err := job.Open(ctx, args, []string{"PATH=" + programs(t, words), "HOME=" + dir}, dir)
		if errors.Is(err, job.ErrHelp) {
			err = nil
		}
		return err
	}
	app := newApp(stdio{})
	app.Writer, app.ErrWriter = io.Discard, io.Discard
	for _, c := range app.Commands {
		for _, c := range append(slices.Clone(c.Subcommands), c) {
			switch c.Name {
			case "help":
				c.Action = manual.Help(documents)
			case "run", "plan", "detect", "init":
				c.Action = func(c *cli.Context) error {
					args := slices.DeleteFunc(c.Args().Slice(), func(w string) bool { return w == "--dry-run" })
					if slices.Contains(args, "--from") { // a run that a page names
						return nil
					}
					_, args, err := readQuestion(args)
					return cmp.Or(err, read(c.Context, args))
				}
			case "estimate":
				c.Action = func(c *cli.Context) error { _, err := estimate.Read(c.Args().Slice()); return err }
			default:
				c.Action = func(*cli.Context) error { return nil }
			}
		}
	}
	return cmp.Or(manual.Misnamed(app, words), app.RunContext(t.Context(), manual.Arrange(app, words)))
}

// programs is a folder with the programs that a line names.
func programs(t *testing.T, words []string) string {
	dir := t.TempDir()
	for _, w := range words {
		if regexp.MustCompile(`^[a-z][a-z0-9-]*$`).MatchString(w) {
			writeFile(t, filepath.Join(dir, w), "#!/bin/sh\n")
		}
	}
	return dir
}

func writeFile(t *testing.T, path, text string) {
	t.Helper()
	testenv.Check(t, os.MkdirAll(filepath.Dir(path), 0o755))
	testenv.Check(t, os.WriteFile(path, []byte(text), 0o755))
}

// Every command line of gpurun's in a block of code on a page is one that gpurun accepts.
func TestCommandsOfThePagesAreAccepted(t *testing.T) {
	names := append(pages(t), examplePages(t)...)
	shown, seen := map[string][][]string{}, 0
	for _, name := range slices.DeleteFunc(names, func(name string) bool { return name == "CHANGELOG.md" }) { // it tells of the past
		shown[name] = shownCommands(t, testenv.Page(t, name))
	}
	for name, lines := range shown {
		for _, words := range lines {
			seen++
			if err := accepted(t, words); err != nil {
				t.Errorf("%s: %s: %v", name, strings.Join(words, " "), err)
			}
		}
	}
	if seen < 25 {
		t.Errorf("only %d lines were looked at", seen)
	}
}

// The check finds what is wrong: a verb, a flag, a value.
func TestCommandsCheckFinds(t *testing.T) {
	text := "x\n\n    $ gpurun pln train.toml\n    gpurun logs --rnk 3\n    srun gpurun --mode lader train.py; c=$?\n    gpurun estimate 7B --zeros 3\n\n```\ngpurun train.toml    # runs\n```\n\ngpurun no code\n"
	var got []string
	for _, words := range shownCommands(t, text) {
		got = append(got, fmt.Sprint(strings.Join(words, " "), ": ", accepted(t, words) == nil))
	}
	want := []string{"gpurun pln train.toml: false", "gpurun logs --rnk 3: false", "gpurun --mode lader train.py: false", "gpurun estimate 7B --zeros 3: false", "gpurun train.toml: true"}
	if !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}
