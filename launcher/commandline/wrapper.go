package commandline

import (
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/gpurun/gpurun/launcher/environ"
)

// A Wrapper is a program that starts the one command that its arguments end with.
type Wrapper struct {
	// Command is its name and, where it has some, the subcommands that start a
	// command: {"uv", "run"}. Its options can stand before and behind a subcommand.
	Command []string
	// Subcommands are other words that mean the last of Command: apptainer run, exec.
	Subcommands []string
	Grammar     Grammar
	// Operands are how many words of its own stand before the command: timeout's
	// duration.
	Operands int
	// Assignments: words NAME=value may stand before the command.
	Assignments bool
	// TakenOff: without options, gpurun itself does what it would do.
	TakenOff bool
	// Environment: the command runs in an environment of the wrapper's, in which the
	// interpreter is the wrapper's to find.
	Environment bool
	// Installs: before that, it may install what is missing, which takes minutes.
	Installs bool
	// Contained: that has files of its own, too, which gpurun does not see.
	Contained bool
	// Runs: a first word that ends in .py is a script that it runs itself.
	Runs bool
	// Opaque are the options with which gpurun does not look behind the wrapper, each
	// with what it does.
	Opaque map[string]string
	// Holds is the reason why the output comes late, unless one of the options Streams
	// is given; empty where it does not.
	Holds   string
	Streams []string
}

// Name is how the wrapper is told to users.
func (w *Wrapper) Name() string { return strings.Join(w.Command, " ") }

// Wrapped is a wrapper's command line taken apart.
type Wrapped struct {
	*Wrapper
	Given []Given // the wrapper's own options
	// Env are the variables that it sets for the command.
	Env environ.Vars
	// Inner is the command, from word At on.
	Inner []string
	At    int
}

// Unwrap takes the wrapper off that a command line begins with; false where there
// is none, or where its options are not known well enough to say where the command
// begins.
func (t *Table) Unwrap(words []string) (Wrapped, bool) {
	if len(words) == 0 {
		return Wrapped{}, false
	}
	w := t.wrapper(path.Base(words[0]))
	if w == nil {
		return Wrapped{}, false
	}
	return w.unwrap(words)
}

// unwrap takes the wrapper off a command line that begins with its name.
func (w *Wrapper) unwrap(words []string) (Wrapped, bool) {
	wrapped := Wrapped{Wrapper: w}
	rest := words[1:]
	for i := 1; ; i++ {
		read, err := w.Grammar.Read(rest)
		if err != nil {
			return Wrapped{}, false
		}
		wrapped.Given, rest = append(wrapped.Given, read.Given...), read.Rest
		if i >= len(w.Command) {
			break
		}
		if len(rest) == 0 || rest[0] != w.Command[i] && (i < len(w.Command)-1 || !slices.Contains(w.Subcommands, rest[0])) {
			return Wrapped{}, false
		}
		rest = rest[1:]
	}
	rest = rest[min(w.Operands, len(rest)):]
	for w.Assignments && len(rest) > 0 && assignment.MatchString(rest[0]) {
		if wrapped.Env == nil {
			wrapped.Env = environ.Vars{}
		}
		name, value, _ := strings.Cut(rest[0], "=")
		wrapped.Env[name] = value
		rest = rest[1:]
	}
	if len(rest) == 0 || strings.HasPrefix(rest[0], "-") {
		return Wrapped{}, false
	}
	wrapped.Inner, wrapped.At = rest, len(words)-len(rest)
	return wrapped, true
}

// TakeOff takes the wrappers off of which gpurun does the work itself, and adds
// their variables to those that stood before the command.
func (t *Table) TakeOff(words []string, env environ.Vars) ([]string, environ.Vars) {
	for {
		w, ok := t.Unwrap(words)
		if !ok || !w.TakenOff || len(w.Given) > 0 {
			return words, env
		}
		words = w.Inner
		if len(w.Env) > 0 {
			more := environ.Vars{}
			maps.Copy(more, env)
			maps.Copy(more, w.Env)
			env = more
		}
	}
}

// wrapper finds a wrapper by its name.
func (t *Table) wrapper(name string) *Wrapper {
	for i := range t.Wrappers {
		if t.Wrappers[i].Command[0] == name {
			return &t.Wrappers[i]
		}
	}
	return nil
}

// valued reports whether a word is an option of the wrapper whose value is the next
// word. It knows none of no wrapper.
func (w *Wrapper) valued(word string) bool {
	if w == nil || len(word) < 2 || word[0] != '-' || strings.Contains(word, "=") {
		return false
	}
	read, err := w.Grammar.Read([]string{word, "value"})
	return err == nil && len(read.Given) > 0 && !read.Given[len(read.Given)-1].Bare && len(read.Rest) == 0
}
