// Package manual writes gpurun's reference: the keys of a train.toml as text, as a page and as a schema for
// editors; manual pages; and shell completion. Everything is generated from the tables that the parsers use:
// the verbs with their flags, the help of the options, and the keys of package job.
package manual

import (
	"embed"
	"encoding/json"
	"io"
	"os"
	"runtime/debug"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/gpurun/gpurun/launcher/commandline"
	"github.com/gpurun/gpurun/launcher/errext"
	"github.com/gpurun/gpurun/launcher/job"
	"github.com/gpurun/gpurun/launcher/lazy"
)

// HelpUsage is the usage of the verb help.
const HelpUsage = "gpurun help [VERB]\ngpurun VERB --help\ngpurun help config [--markdown]\ngpurun help schema [VERB]\ngpurun help man [VERB]"

// HelpDescription describes the topics besides the help of verbs.
const HelpDescription = `config shows all keys of a train.toml with their defaults, as a file; schema is its JSON Schema, for editors,
and with a verb the JSON Schema of what that prints with --json; man is a manual page, for "man -l -".`

// Help returns what carries out the verb help: it shows a topic, the help of a verb, or gpurun's own.
func Help(documents Documents) cli.ActionFunc {
	return func(c *cli.Context) error { return help(c, documents) }
}

func help(c *cli.Context, documents Documents) error {
	words := c.Args().Slice()
	if len(words) == 0 || !IsTopic(words[0]) {
		return ShowHelp(c)
	}
	topic, rest := words[0], words[1:]
	if topic == "man" {
		return showMan(c, rest)
	}
	if topic == "schema" && len(rest) > 0 {
		return documents.Write(c.App.Writer, strings.Join(rest, " "))
	}
	write := map[string]func(io.Writer) error{"config": WriteConfig, "schema": WriteSchema}[topic]
	if topic == "config" && len(rest) == 1 && rest[0] == "--markdown" {
		return WriteConfigPage(c.App.Writer)
	}
	if len(rest) > 0 {
		return errext.Errorf("gpurun help help shows what there is", "unexpected argument %q for gpurun help %s", rest[0],
			topic)
	}
	if err := write(c.App.Writer); err != nil || topic != "config" {
		return err
	}
	return writeSettings(c.App.Writer, commandline.ParseEnviron(os.Environ()))
}

// showMan writes the manual page of gpurun, or of a verb.
func showMan(c *cli.Context, words []string) error {
	if len(words) == 0 {
		return WriteMan(c.App.Writer, c.App)
	}
	of := c.App.Command(words[0])
	switch {
	case of == nil:
		return errext.Errorf("gpurun help lists the verbs", "%q is not a verb", words[0])
	case len(words) > 1:
		return errext.Errorf("gpurun help help shows what there is", "unexpected argument %q for gpurun help man",
			strings.Join(words[1:], " "))
	}
	return WriteManOf(c.App.Writer, of)
}

// Shells are the shells whose command lines can be completed.
var Shells = []string{"bash", "zsh", "fish"}

//go:embed shells
var scripts embed.FS

// CompletionUsage and CompletionDescription are the help of the verb completion.
const (
	CompletionUsage       = "gpurun completion [--json] bash|zsh|fish\ngpurun completion SHELL -- WORD…"
	CompletionDescription = `The script goes where the shell looks for it; for one session:
   bash   source <(gpurun completion bash)
   zsh    source <(gpurun completion zsh)          (after compinit)
   fish   gpurun completion fish | source
With words behind --, which follow "gpurun" on a line, what may stand in the place of the last one is printed: the
scripts ask for that.`
)

// Completion carries out the verb completion: it writes a shell's script, or answers its requests.
func Completion(c *cli.Context, out io.Writer) error {
	shell, words := c.Args().First(), c.Args().Tail()
	script, err := scripts.ReadFile("shells/completion." + shell)
	switch {
	case shell == "":
		return errext.Errorf("gpurun completion bash", "completion takes a shell: bash, zsh or fish")
	case err != nil:
		hint := "there are bash, zsh and fish"
		if meant := job.Nearest(shell, Shells); meant != "" {
			hint = "did you mean " + meant + "?"
		}
		return errext.Errorf(hint, "there is no completion for %q", shell)
	case len(words) > 0:
		_, err = Complete(c.App, words).WriteTo(out)
	case c.Bool("json"):
		err = json.NewEncoder(out).Encode(map[string]string{"shell": shell, "script": string(script)})
	default:
		_, err = out.Write(script)
	}
	return err
}

// Version returns the module's version, such as a release's tag, or the commit that the binary was built
// from.
func Version() string {
	info, ok := debug.ReadBuildInfo()
	if ok && info.Main.Version != "" && info.Main.Version != "(devel)" {
		return info.Main.Version
	}
	if commit := Commit(); commit != "" {
		return "devel-" + commit[:min(12, len(commit))]
	}
	return "devel"
}

// Commit returns the commit that the binary was built from; empty if not known.
func Commit() string {
	if info, ok := debug.ReadBuildInfo(); ok {
		return commitIn(info)
	}
	return ""
}

// pseudoVersion matches the version that Go makes for a module without a tag: it ends in the commit.
var pseudoVersion = lazy.Regexp(`[-.]\d{14}-([0-9a-f]{12})(?:\+.*)?$`)

func commitIn(info *debug.BuildInfo) string {
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" {
			return s.Value
		}
	}
	if m := pseudoVersion().FindStringSubmatch(info.Main.Version); m != nil {
		return m[1] // go install
	}
	return linkedCommit
}

// linkedCommit is set by make build, for where Go does not find the commit, as in a worktree of git.
var linkedCommit string
