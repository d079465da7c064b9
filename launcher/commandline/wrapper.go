package commandline

import (
	"fmt"
	"path"
	"slices"
	"strings"
)

// A Wrapper is a program that starts one command, the last of its arguments.
type Wrapper struct {
	// Command is its name and, if any, the subcommands that start a command: {"uv", "run"}. Its options can
	// appear before and after a subcommand.
	Command []string
	// Subcommands are alternatives to the last word of Command, such as apptainer run and exec.
	Subcommands []string
	Grammar     OptionGrammar
	// Operands is the number of its own words before the command, such as timeout's duration.
	Operands int
	// Assignments: words NAME=value may appear before the command.
	Assignments bool
	// TakenOff: gpurun removes it if it has no options, and does the same itself.
	TakenOff bool
	// Environment: the command runs in the wrapper's own environment, and only the wrapper can find the
	// interpreter.
	Environment bool
	// Installs: before that, it may install missing packages, which takes minutes.
	Installs bool
	// Contained: that environment also has its own files, which gpurun does not see.
	Contained bool
	// Runs: if the first word ends in .py, the wrapper itself runs it as a script.
	Runs bool
	// Opaque maps options that hide the command from gpurun to what each does.
	Opaque map[string]string
	// Holds is the reason why the output is delayed, unless one of the options in Streams is given; empty if
	// it is not delayed.
	Holds   string
	Streams []string
}

// Name returns the wrapper's name for messages.
func (w *Wrapper) Name() string { return strings.Join(w.Command, " ") }

// Wrapped is a wrapper's parsed command line.
type Wrapped struct {
	*Wrapper
	Given []Given // the wrapper's own options
	// Env are the variables that the wrapper sets for the command.
	Env Environ
	// Inner is the command, which begins at word At.
	Inner []string
	At    int
}

// Unwrap removes the wrapper at the beginning of a command line. It reports false if there is none, or if
// unknown options hide where the command begins.
func (t *ProgramTable) Unwrap(words []string) (Wrapped, bool) {
	if len(words) == 0 {
		return Wrapped{}, false
	}
	w := t.wrapper(path.Base(words[0]))
	if w == nil {
		return Wrapped{}, false
	}
	return w.unwrap(words)
}

// unwrap removes the wrapper from a command line that begins with its name.
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
	for w.Assignments && len(rest) > 0 && assignment().MatchString(rest[0]) {
		if wrapped.Env == nil {
			wrapped.Env = Environ{}
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

// wrapper finds a wrapper by its name.
func (t *ProgramTable) wrapper(name string) *Wrapper {
	for i := range t.Wrappers {
		if t.Wrappers[i].Command[0] == name {
			return &t.Wrappers[i]
		}
	}
	return nil
}

// valued reports whether a word is an option of the wrapper whose value is the next word. A nil wrapper has
// no options.
func (w *Wrapper) valued(word string) bool {
	if w == nil || len(word) < 2 || word[0] != '-' || strings.Contains(word, "=") {
		return false
	}
	read, err := w.Grammar.Read([]string{word, "value"})
	return err == nil && len(read.Given) > 0 && !read.Given[len(read.Given)-1].Bare && len(read.Rest) == 0
}

// wrappers are the known wrappers, with the options that are needed to find the command.
var wrappers = []Wrapper{
	{Command: []string{"exec"}, TakenOff: true, Grammar: getopt("c l", "a")},
	{Command: []string{"env"}, Assignments: true, TakenOff: true,
		Opaque:  map[string]string{"ignore-environment": cleans, "i": cleans, "chdir": moves, "C": moves},
		Grammar: getopt("i ignore-environment 0 null v debug", "u unset C chdir a argv0")},
	{Command: []string{"nohup"}},
	{Command: []string{"setsid"}, Opaque: map[string]string{"": "leaves the command behind"},
		Grammar: getopt("c ctty f fork w wait", "")},
	{Command: []string{"time"}, Grammar: getopt("p portability a append v verbose q quiet", "f format o output")},
	{Command: []string{"timeout"}, Operands: 1, Grammar: getopt("f foreground p preserve-status v verbose",
		"k kill-after s signal")},
	{Command: []string{"nice"}, Grammar: getopt("", "n adjustment")},
	{Command: []string{"ionice"}, Grammar: getopt("t ignore", "c class n classdata")},
	{Command: []string{"stdbuf"}, Grammar: getopt("", "i input o output e error")},
	{Command: []string{"taskset"}, Operands: 1, Grammar: getopt("a all-tasks c cpu-list", "")},
	{Command: []string{"numactl"}, Grammar: getopt("l localalloc s show H hardware b balancing", //
		"i interleave w weighted-interleave p preferred P preferred-many m membind N cpunodebind C physcpubind")},
	{Command: []string{"sudo"}, Assignments: true, Opaque: map[string]string{"": cleans},
		Grammar: getopt("A askpass b background E B bell H set-home i login k K n non-interactive P S stdin s shell", //
			"u user g group D chdir R chroot p prompt C close-from h host r role t type T command-timeout U other-user")},
	{Command: []string{"uv", "run"}, Environment: true, Installs: true, Runs: true,
		Opaque: map[string]string{"directory": moves}, Grammar: uvRun},
	{Command: []string{"poetry", "run"}, Environment: true, Opaque: map[string]string{"directory": moves, "C": moves},
		Grammar: getopt("n no-interaction no-plugins no-cache q quiet v verbose ansi no-ansi", "C directory P project")},
	{Command: []string{"pdm", "run"}, Environment: true, Runs: true,
		Opaque:  map[string]string{"project": moves, "p": moves},
		Grammar: getopt("s site-packages q quiet v verbose", "p project e env-file venv c config")},
	{Command: []string{"pipenv", "run"}, Environment: true,
		Grammar: getopt("q quiet v verbose site-packages", "python pypi-mirror")},
	{Command: []string{"hatch", "run"}, Environment: true, Installs: true,
		Opaque: map[string]string{"project": moves, "p": moves},
		Grammar: getopt("v verbose q quiet no-color interactive no-interactive",
			"e env p project data-dir cache-dir config")},
	{Command: []string{"pixi", "run"}, Environment: true, Installs: true, Opaque: map[string]string{"clean-env": cleans},
		Grammar: getopt("frozen locked no-install as-is no-lockfile-update q quiet v verbose clean-env skip-deps x executable no-progress force-activate no-completions n dry-run",
			"e environment manifest-path m color templated concurrent-downloads tls-no-verify")},
	condaRun("conda", condaHolds), condaRun("mamba", ""), condaRun("micromamba", ""),
	containerised("apptainer"), containerised("singularity"),
}

// Effects of options that hide the command from gpurun.
const (
	moves  = "starts it in another directory"
	cleans = "takes variables of its environment away"
)

// uvRun has the commonly used options of uv run (uv 0.9).
var uvRun = getopt("isolated active no-active no-sync locked frozen all-extras all-groups no-default-groups no-dev no-project no-env-file no-config "+
	"offline exact inexact managed-python no-managed-python no-python-downloads q quiet v verbose n no-cache U upgrade reinstall only-dev dev all-packages native-tls "+
	"m module s script gui-script no-editable no-sources no-index no-build no-binary no-build-isolation no-progress refresh compile-bytecode",
	"extra no-extra group no-group only-group env-file with with-editable with-requirements p python package project directory "+
		"index default-index i index-url extra-index-url f find-links cache-dir config-file color P upgrade-package python-platform w "+
		"torch-backend resolution prerelease fork-strategy exclude-newer link-mode index-strategy keyring-provider allow-insecure-host "+
		"reinstall-package refresh-package no-build-package no-binary-package no-build-isolation-package python-preference C config-setting")

const condaHolds = "it holds the command's output back until the end"

// condaRun returns the wrapper for conda, or a program like it.
func condaRun(name, holds string) Wrapper {
	return Wrapper{
		Command: []string{name, "run"}, Environment: true, Holds: holds,
		Streams: []string{"no-capture-output", "live-stream", "s"},
		Opaque: map[string]string{"cwd": moves, "clean-env": cleans, "detach": "leaves the command behind",
			"d": "leaves the command behind"},
		Grammar: getopt("v verbose dev debug-wrapper-scripts no-capture-output live-stream s clean-env detach d",
			"n name p prefix cwd a attach r root-prefix e env"),
	}
}

// containerised returns the wrapper for Apptainer or Singularity.
func containerised(name string) Wrapper {
	return Wrapper{
		Command: []string{name, "exec"}, Subcommands: []string{"run"}, Operands: 1, Environment: true, Contained: true,
		Opaque: map[string]string{"pwd": moves, "cwd": moves, "W": moves, "workdir": moves, "e": cleans, "cleanenv": cleans,
			"c": cleans, "contain": cleans, "C": cleans, "containall": cleans},
		Grammar: getopt("nv nvccli rocm c contain C containall e cleanenv i ipc p pid f fakeroot writable writable-tmpfs w compat no-eval u userns d debug q quiet s silent v verbose",
			"B bind env env-file H home pwd cwd W workdir o overlay app n net network security scratch S mount cpus memory"),
	}
}

// A SeenThrough is a command, with the wrappers before it.
type SeenThrough struct {
	// Words are the words of the wrappers, in order, without wrappers that gpurun replaces.
	Words []string
	// Ask are Words that can start an interpreter in place of the command.
	Ask []string
	// Wrappers are the wrappers in Words.
	Wrappers []*Wrapper
	// Env are the variables that the wrappers set for the command.
	Env Environ
	// Typed are the words as typed, without leading wrappers that gpurun replaces.
	Typed []string
	// Inner is the command. If Direct is set, the last wrapper itself runs its first word, a script.
	Inner  []string
	Direct bool
	// Warnings are messages to the user.
	Warnings []string
}

// Environment reports whether a wrapper finds the interpreter.
func (s *SeenThrough) Environment() bool {
	return slices.ContainsFunc(s.Wrappers, func(w *Wrapper) bool { return w.Environment })
}

// Installs reports whether a wrapper may install packages before it starts anything.
func (s *SeenThrough) Installs() bool {
	return slices.ContainsFunc(s.Wrappers, func(w *Wrapper) bool { return w.Installs })
}

// Contained reports whether gpurun cannot see the interpreter's files.
func (s *SeenThrough) Contained() bool {
	return slices.ContainsFunc(s.Wrappers, func(w *Wrapper) bool { return w.Contained })
}

// SeeThrough removes the wrappers at the beginning of a command line, as far as it is certain what they
// start, where, and with which variables.
func (t *ProgramTable) SeeThrough(words []string) SeenThrough {
	s := SeenThrough{Env: Environ{}, Typed: words, Inner: words}
	for !s.Direct {
		w, ok := t.Unwrap(s.Inner)
		if !ok {
			return s
		}
		if why := w.opaque(); why != "" {
			s.Warnings = append(s.Warnings, why)
			return s
		}
		for name, value := range w.Env {
			s.Env[name] = value
		}
		if !w.TakenOff || len(w.Given) > 0 {
			s.add(w)
			continue
		}
		if s.Inner = w.Inner; len(s.Words) == 0 {
			s.Typed = w.Inner
		}
	}
	return s
}

// add adds a wrapper before the command.
func (s *SeenThrough) add(w Wrapped) {
	before, own := s.Words, s.Inner[:w.At]
	s.Inner, s.Wrappers = w.Inner, append(s.Wrappers, w.Wrapper)
	s.Words, s.Ask = slices.Concat(before, own), slices.Concat(before, own)
	if w.Holds != "" && !slices.ContainsFunc(w.Given,
		func(g Given) bool { return slices.Contains(w.Streams, g.option()) }) {
		s.Warnings = append(s.Warnings, fmt.Sprintf("%s: %s, without --%s", w.Name(), w.Holds, w.Streams[0]))
	}
	if !w.Runs {
		return
	}
	plain := func(names ...string) ([]string, bool) { // the wrapper without one option
		left := slices.DeleteFunc(slices.Clone(own), func(word string) bool { return slices.Contains(names, word) })
		return slices.Concat(before, left), len(left) < len(own)
	}
	if words, module := plain("-m", "--module"); module {
		// gpurun passes -m to the interpreter in place of the wrapper.
		s.Words, s.Ask = words, words
		s.Inner = append([]string{"python", "-m"}, s.Inner...)
		return
	}
	words, script := plain("-s", "--script", "--gui-script")
	first := s.Inner[0]
	s.Ask = words
	s.Direct = script || !strings.Contains(first, "://") &&
		(strings.HasSuffix(first, ".py") || strings.HasSuffix(first, ".pyw"))
}

// opaque explains why gpurun cannot see the command of a wrapper; empty if it can.
func (w Wrapped) opaque() string {
	does, always := w.Opaque[""]
	if always {
		return fmt.Sprintf("%s %s, so gpurun does not read the command after it: put gpurun between them", w.Name(), does)
	}
	for _, g := range w.Given {
		if does := w.Opaque[g.option()]; does != "" {
			return fmt.Sprintf("%s of %s %s, so gpurun does not read the command after it", g.Source, w.Name(), does)
		}
	}
	return ""
}

// option returns an option's name, or its letter.
func (g Given) option() string {
	if g.Name == "" {
		return string(g.Short)
	}
	return g.Name
}
