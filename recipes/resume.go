package recipes

import (
	"fmt"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/gpurun/gpurun/recipes/patch"
	"github.com/gpurun/gpurun/strategy"
)

var argumentInGlob = regexp.MustCompile(`\{(--?[^{}]+)\}`)

// ResumeGlob is the glob of complete checkpoints, the command's own values filled
// in. It is false where the recipe has none, or where the command does not give
// an argument that the glob needs.
func (r Recipe) ResumeGlob(cmd Command) (glob string, ok bool) {
	d, ok := newDraft(r, cmd), r.Resume.Latest != ""
	glob = argumentInGlob.ReplaceAllStringFunc(r.Resume.Latest, func(name string) string {
		value, given := d.argument(strings.Trim(name, "{}"))
		ok = ok && given
		return value
	})
	return glob, ok
}

// ResumeFiles lists the files of a checkpoint that must be in cmd.Files before
// ResumeFrom. One that does not exist is left out.
func (r Recipe) ResumeFiles(checkpoint string) []string {
	var files []string
	for _, name := range r.Rules {
		for file := range rules[name].checkpoint {
			files = append(files, path.Join(checkpoint, file))
		}
	}
	slices.Sort(files)
	return files
}

// ResumeFrom returns a change that Apply made with the checkpoint put on its
// command line. Where the checkpoint itself holds a setting that the plan
// changes, the command names a copy of the checkpoint under dir: its other files
// are linked beside the changed one, as Change.Siblings says.
func (r Recipe) ResumeFrom(change Change, cmd Command, plan strategy.Plan, checkpoint, dir string) (Change, error) {
	d := newDraft(r, Command{Argv: change.Argv, Env: cmd.Env, Files: cmd.Files})
	d.sole = ""
	next := change
	next.Files, next.Siblings = cloned(change.Files), cloned(change.Siblings)
	var edited []byte
	folder := path.Join("checkpoint", path.Base(checkpoint))
	for _, name := range r.Rules {
		for file, edit := range rules[name].checkpoint {
			from := path.Join(checkpoint, file)
			text, loaded := cmd.Files[from]
			if !loaded {
				continue
			}
			changed, err := edit(text, plan)
			if err != nil {
				return Change{}, fmt.Errorf("change %s: %w", from, err)
			}
			if string(changed) == string(text) {
				continue
			}
			to := path.Join(folder, file)
			next.Files[to], next.Siblings[folder] = changed, checkpoint
			edited = append(edited, unified(from, text, to, changed)...)
		}
	}
	if edited != nil {
		checkpoint = path.Join(dir, folder)
	}
	next.Argv = r.resumed(d, cmd, checkpoint)
	next.Diff = string(edited) + change.Diff + string(unified("command", optionLines(change.Argv), "resumed command", optionLines(next.Argv)))
	return next, nil
}

// resumed is the command line with the resume arguments, each in place of one
// that the user gave.
func (r Recipe) resumed(d *draft, cmd Command, checkpoint string) []string {
	words := make([]string, len(r.Resume.Args))
	for i, word := range r.Resume.Args {
		words[i] = strings.ReplaceAll(word, "{latest}", checkpoint)
	}
	argv := slices.Clone(d.argv)
	for _, o := range optionsOf(words) {
		switch {
		case !strings.HasPrefix(o.name, "-"):
			if key, value, equals := strings.Cut(o.name, "="); equals {
				argv = patch.SetOverride(argv, key, value)
			} else {
				argv = patch.Append(argv, o.name)
			}
		case !o.bare:
			argv = d.grammar.Set(argv, o.name, o.value)
		case !d.grammar.Has(argv, o.name):
			argv = patch.Append(argv, o.name)
		}
	}
	return argv
}

func cloned[V any](m map[string]V) map[string]V {
	if m == nil {
		return map[string]V{}
	}
	return maps.Clone(m)
}
