package recipes

import (
	"fmt"
	"maps"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/gpurun/gpurun/recipes/patch"
	"github.com/gpurun/gpurun/strategy"
)

// inBraces matches {--output_dir}, {--output_dir|out} and {name}.
var inBraces = regexp.MustCompile(`\{(-{0,2}[^{}|]+)(\|[^{}]*)?\}`)

// ResumeGlob is the glob of complete checkpoints, the command's own values filled
// in. It is false where the recipe has none, or where the command does not give
// an argument that the glob needs.
func (r Recipe) ResumeGlob(cmd Command) (glob string, ok bool) {
	glob, known := newDraft(r, cmd).filled(r.Resume.Latest)
	return glob, known && glob != ""
}

// Pointer is the file that names the newest checkpoint, empty where the framework
// writes none.
func (r Recipe) Pointer(cmd Command) string {
	file, known := newDraft(r, cmd).filled(r.Resume.Pointer)
	if !known {
		return ""
	}
	return file
}

// pointerText is where the text of the pointer goes.
var pointerText = regexp.MustCompile(`\{pointer(?::(\d+))?\}`)

// PointedAt is the checkpoint that the text of the pointer file means; false where
// it means none, as a word in place of a number.
func (r Recipe) PointedAt(cmd Command, text string) (checkpoint string, ok bool) {
	text = strings.TrimSpace(text)
	if r.Resume.Pointed == "" {
		return text, text != ""
	}
	parts := pointerText.FindStringSubmatch(r.Resume.Pointed)
	if parts == nil {
		return "", false
	}
	if parts[1] != "" {
		n, err := strconv.ParseUint(text, 10, 64)
		if err != nil {
			return "", false
		}
		text = fmt.Sprintf("%0"+parts[1]+"d", n)
	}
	return newDraft(r, cmd).filled(strings.Replace(r.Resume.Pointed, parts[0], text, 1))
}

// FollowsPointer reports whether the framework itself takes what its pointer file
// names, so that without one there is nothing to resume from.
func (r Recipe) FollowsPointer() bool {
	return r.Resume.Pointer != "" && !slices.ContainsFunc(r.Resume.Args, func(word string) bool { return strings.Contains(word, "{latest}") })
}

// filled replaces {--x}, {--x|default} and {name} in a text by what the command
// gives; false where something has neither a value nor a default. {latest} and
// {job} stay.
func (d *draft) filled(text string) (string, bool) {
	ok := true
	filled := inBraces.ReplaceAllStringFunc(text, func(match string) string {
		m := inBraces.FindStringSubmatch(match)
		if m[1] == "latest" || m[1] == "job" || strings.HasPrefix(m[1], "pointer") {
			return match
		}
		value, given := "", false
		if strings.HasPrefix(m[1], "-") {
			value, given = d.argument(m[1])
		} else {
			value, given = d.resumeValue(m[1])
		}
		switch {
		case given:
			return value
		case m[2] != "":
			return m[2][1:]
		}
		ok = false
		return match
	})
	return filled, ok
}

// resumeValue is one of the recipe's [resume.values].
func (d *draft) resumeValue(name string) (string, bool) {
	for _, p := range d.existing(d.recipe.Resume.Values[name]) {
		if word, found, err := d.raw(p); err == nil && found && word != nil {
			return fmt.Sprint(word), true
		}
	}
	value, given := d.recipe.Resume.Defaults[name]
	return value, given
}

// Pinned returns the words that keep all attempts in one folder, those that the
// command has left out; job is a name of the run.
func (r Recipe) Pinned(cmd Command, job string) []string {
	d := newDraft(r, cmd)
	var words []string
	for _, o := range optionsOf(r.Resume.Pin) {
		value := strings.ReplaceAll(o.value, "{job}", job)
		switch {
		case o.override:
			if _, given := patch.Override(d.argv, o.name); !given {
				if r.Resume.PinUnder != "" && !slices.Contains(words, r.Resume.PinUnder) {
					words = append(words, r.Resume.PinUnder)
				}
				words = append(words, o.name+"="+value)
			}
		case d.grammar.Has(d.argv, o.name):
		case o.bare:
			words = append(words, o.name)
		case d.grammar.Equals:
			words = append(words, o.name+"="+value)
		default:
			words = append(words, o.name, value)
		}
	}
	return words
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
	next := change
	next.Files, next.Siblings = cloned(change.Files), cloned(change.Siblings)
	edited, err := r.editCheckpoint(&next, cmd, plan, checkpoint)
	if err != nil {
		return Change{}, err
	}
	if edited != nil {
		checkpoint = path.Join(dir, checkpointCopy(checkpoint))
	}
	next.Diff = string(edited) + change.Diff
	words := make([]string, len(r.Resume.Args))
	for i, word := range r.Resume.Args {
		text, known := newDraft(r, cmd).filled(word)
		if !known {
			return Change{}, fmt.Errorf("resume with %s: the command does not say it", word)
		}
		words[i] = strings.ReplaceAll(text, "{latest}", checkpoint)
	}
	if sole := newDraft(r, cmd).sole; sole != "" {
		return next.resumeInFile(cmd, sole, words, dir)
	}
	grammar := newDraft(r, cmd).grammar
	next.Argv = resumed(grammar, change.Argv, words)
	next.Diff += string(unified("command", optionLines(change.Argv), "resumed command", optionLines(next.Argv)))
	return next, nil
}

// checkpointCopy is the folder for the copy of a checkpoint.
func checkpointCopy(checkpoint string) string { return path.Join("checkpoint", path.Base(checkpoint)) }

// editCheckpoint adds changed copies of a checkpoint's files, and returns their
// diff, nil where nothing has to change.
func (r Recipe) editCheckpoint(next *Change, cmd Command, plan strategy.Plan, checkpoint string) ([]byte, error) {
	var edited []byte
	folder := checkpointCopy(checkpoint)
	for _, name := range r.Rules {
		for file, edit := range rules[name].checkpoint {
			from := path.Join(checkpoint, file)
			text, loaded := cmd.Files[from]
			if !loaded {
				continue
			}
			changed, err := edit(text, plan)
			if err != nil {
				return nil, fmt.Errorf("change %s: %w", from, err)
			}
			if string(changed) == string(text) {
				continue
			}
			to := path.Join(folder, file)
			next.Files[to], next.Siblings[folder] = changed, checkpoint
			edited = append(edited, unified(from, text, to, changed)...)
		}
	}
	return edited, nil
}

// resumed is the command line with the resume arguments, each in place of one
// that the user gave.
func resumed(grammar patch.Argv, argv, words []string) []string {
	argv = slices.Clone(argv)
	for _, o := range optionsOf(words) {
		switch {
		case o.override:
			argv = grammar.SetOverride(argv, "", o.name, o.value)
		case !strings.HasPrefix(o.name, "-"):
			argv = grammar.Append(argv, o.name)
		case !o.bare:
			argv = grammar.Set(argv, o.name, o.value)
		case !grammar.Has(argv, o.name):
			argv = grammar.Append(argv, o.name)
		}
	}
	return argv
}

// resumeInFile puts the resume arguments into the one file that holds all
// arguments, or into the copy of it that the change has already.
func (c Change) resumeInFile(cmd Command, sole string, words []string, dir string) (Change, error) {
	name, text := path.Join("config", path.Base(sole)), cmd.Files[sole]
	for changed, newer := range c.Files {
		if path.Join(dir, changed) == c.Argv[1] {
			name, text = changed, newer
		}
	}
	format, _ := patch.FormatOf(sole, text)
	next := text
	for _, o := range optionsOf(words) {
		value := any(o.value)
		if o.bare {
			value = true
		}
		var err error
		if next, err = patch.Set(format, next, soleKey(o.name), value); err != nil {
			return Change{}, fmt.Errorf("change %s: %w", sole, err)
		}
	}
	c.Files[name] = next
	c.Argv = []string{c.Argv[0], path.Join(dir, name)}
	c.Diff += string(unified(sole, text, name, next))
	return c, nil
}

func cloned[V any](m map[string]V) map[string]V {
	if m == nil {
		return map[string]V{}
	}
	return maps.Clone(m)
}
