package script

import (
	"bytes"
	"regexp"
	"slices"
	"strings"

	"github.com/gpurun/gpurun/recipes/format"
)

var (
	// readers are what takes a job's command line apart.
	readers = regexp.MustCompile(`\b(?:\w*Argument[pP]arser|TrlParser|parse_args|parse_known_args|parse_args_into_dataclasses|hydra\.main|fire\.Fire|Fire|typer\.Typer|typer\.run|click\.command|` +
		`app\.run|tyro\.cli|LightningCLI|from_cli|jsonargparse\.CLI|CLI|auto_cli|make_cli|default_argument_parser)[ \t]*\(|\bsys\.argv\b|@click\.|configurator\.py`)
	// mainBlock begins what runs only where the file is the script.
	mainBlock = regexp.MustCompile(`(?m)^if[ \t]+__name__[ \t]*==`)
)

// entry are the sources by which a job's framework is told: the script, and behind
// it, where the script does not read its command line, the nearest of its modules
// that does. A script may be no more than an import and a call, as the train_mem.py
// of LLaVA is.
func entry(cmd format.Command) [][]byte {
	if cmd.Script == nil {
		return nil
	}
	texts := [][]byte{cmd.Script}
	if len(cmd.Modules) == 0 || readers.MatchString(code(format.Source{Text: cmd.Script})) {
		return texts
	}
	for _, m := range cmd.Modules {
		if !readers.Match(m.Text) {
			continue // most have nothing of the kind, not even in a comment
		}
		text := code(m)
		if at := mainBlock.FindStringIndex(text); at != nil {
			text = text[:at[0]]
		}
		if readers.MatchString(text) {
			return append(texts, m.Text)
		}
	}
	return texts
}

// anyImports reports whether one of some sources imports a name.
func anyImports(sources [][]byte, name string) bool {
	root, _, _ := strings.Cut(name, ".")
	return slices.ContainsFunc(sources, func(text []byte) bool { return bytes.Contains(text, []byte(root)) && imports(text, name) })
}
