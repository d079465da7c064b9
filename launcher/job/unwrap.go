package job

import (
	"context"
	"errors"
	"maps"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/gpurun/gpurun/launcher/commandline"
	"github.com/gpurun/gpurun/launcher/errext"
	"github.com/gpurun/gpurun/launcher/python"
	"github.com/gpurun/gpurun/recipes"
)

// A command is the command of a job, parsed from the typed words.
type command struct {
	kind Kind
	argv []string
	env  map[string]string
	// through precedes argv in the command of each rank.
	through Through
	// python and torchrun are the interpreter and the launcher as typed, options the options of the
	// interpreter.
	python, torchrun string
	options          []string
	// line has torchrun's flags; nil without torchrun.
	line *commandline.TorchrunCommand
	// nodes has what a launcher's words say about the nodes of the launch.
	nodes commandline.Nodes
	// inner are the variables that another launcher would set. launcher is that launcher; zero for none.
	inner    map[string]string
	launcher commandline.RankStarter
	// typed are the words without leading variables and without wrappers that gpurun replaces.
	typed    []string
	used     []string // names of the variables in the line
	warnings []string
}

// words are the typed words, with the environment that their meaning depends on.
type words struct {
	typed    []string
	assigned commandline.Environ // variables before the words
	// self: the words are one process, which runs unchanged.
	self bool
	// env are the job's own variables, and inherited those of gpurun. PET_* in both count.
	env, inherited commandline.Environ
	dir            string
	hook           frameworkHook // may be nil
	// seen has the wrappers among the words, once command has removed them; then assigned and the variables
	// of wrappers are in env.
	seen commandline.SeenThrough
}

// commandFrom splits a line as a shell does, replaces its variables, and parses it. w has no words yet. The
// error has a hint.
func commandFrom(line string, w words, lookup func(string) (string, bool)) (*command, error) {
	split, used, err := commandline.Expand(line, lookup)
	if err != nil {
		return nil, withHint(err)
	}
	w.assigned, w.typed = commandline.Assignments(split)
	c, err := w.command()
	if c != nil {
		c.used = used
	}
	return c, err
}

// command separates from the words what gpurun does itself: leading variables, torchrun, the interpreter. The
// error has a hint.
func (w words) command() (*command, error) {
	if len(w.typed) == 0 {
		return nil, errext.Errorf("", "the command is empty")
	}
	if w.self {
		return &command{kind: Program, argv: w.typed, env: w.assigned}, nil
	}
	assigned := w.assigned
	w.seen = commandline.Known.SeeThrough(w.typed)
	if len(w.seen.Env) > 0 {
		assigned = assigned.With(w.seen.Env)
	}
	w.env = w.env.With(assigned)
	c, err := w.innerCommand()
	switch {
	case c != nil || err != nil:
	case w.seen.Direct:
		c = &command{kind: Script, argv: w.seen.Inner}
	default:
		c, err = unwrap(w.seen.Inner, w.inherited.With(w.env))
	}
	if err != nil {
		return nil, err
	}
	if c.kind == Program {
		c.argv = w.throughShell(c.argv)
	}
	c.env, c.warnings = assigned, w.seen.Warnings
	c.behind(w.seen)
	if len(c.through.Wrappers)+len(c.through.Options) > 0 {
		c.typed = w.seen.Typed
	}
	for name, value := range c.inner {
		if _, set := w.env[name]; set {
			continue // the user's value overrides it
		}
		if c.env == nil {
			c.env = map[string]string{}
		}
		c.env[name] = value
	}
	return c, nil
}

// unwrap removes torchrun and the interpreter from a command, and refuses other launchers. env has the
// variables before the command.
func unwrap(words []string, env map[string]string) (*command, error) {
	c, err := unwrapTorchrun(words, env)
	if c != nil || err != nil {
		return c, err
	}
	if err := refuseInner(Program, words); err != nil {
		return nil, err
	}
	if commandline.IsPython(words[0]) {
		return unwrapPython(words)
	}
	return &command{kind: Program, argv: words}, nil
}

// unwrapTorchrun removes torchrun, under either of its names; nil if it is not the first word.
func unwrapTorchrun(words []string, env map[string]string) (*command, error) {
	found, _ := commandline.Known.Find(words)
	is, legacy := found.Torchrun()
	if !is {
		return nil, nil
	}
	c := &command{python: found.Python}
	if c.python == "" {
		c.torchrun = words[0]
	}
	line, err := readTorchrun(found.Args, env, legacy)
	if err != nil {
		return nil, err
	}
	if line.Python != "" {
		return nil, errext.Errorf("set job.python", "torchrun has no flag --python")
	}
	c.kind, c.argv, c.line, c.nodes = line.Kind, line.Command, line, line.Nodes
	return c, refuseInner(c.kind, c.argv)
}

// refuseInner refuses a launcher that gpurun would start on each rank.
func refuseInner(kind Kind, argv []string) error {
	err := refused(commandline.Known.StartsRanks(kind, argv))
	if err == nil && kind == Program {
		err = misplaced(nil, argv, []string{"gpurun"}, argv)
	}
	return err
}

// refused returns the error for a launcher that would start on each rank; nil for none.
func refused(name string) error {
	if name == "" {
		return nil
	}
	return errext.Errorf(`set launch.ranks = "self", or give the command that it runs on each rank`,
		"%s starts its own ranks: it would be started once for each rank", name)
}

// unwrapPython removes the interpreter, which gpurun starts itself, always with -u. If it has options that
// change what it runs, it stays, and the command is a program.
func unwrapPython(words []string) (*command, error) {
	p, err := commandline.ReadPython(words)
	switch {
	case err != nil || p.Kind == Program || !p.Clear:
		return &command{kind: Program, argv: words}, nil
	case len(p.Argv) == 0:
		return nil, errext.Errorf("name the script", "%s would wait for input", words[0])
	}
	return &command{kind: p.Kind, argv: p.Argv, python: words[0], options: p.Options}, nil
}

// A frameworkHook removes a framework's launcher from words without wrappers. It reports false if it finds no
// known launcher.
type frameworkHook func(words) (commandline.Inner, bool, error)

// innerCommand returns the command in a framework's launcher; nil if the words have no such launcher.
func (w words) innerCommand() (*command, error) {
	if w.hook == nil {
		return nil, nil
	}
	inner, known, err := w.hook(w)
	if err != nil || !known {
		return nil, err
	}
	c := &command{kind: inner.Kind, argv: inner.Argv, inner: maps.Clone(inner.Env), launcher: inner.RankStarter,
		nodes: inner.Nodes}
	if commandline.IsPython(w.seen.Inner[0]) {
		c.python = w.seen.Inner[0]
	}
	if inner.Ranks != "" {
		c.line = commandline.LaunchOf(inner.Ranks, "the launcher's number of ranks")
	}
	return c, refuseInner(c.kind, c.argv)
}

// ErrHelp: the command line requests help.
var ErrHelp = commandline.ErrHelp

// readTorchrun reads torchrun's command line, with gpurun's own flags among torchrun's. legacy means
// torch.distributed.launch. Errors have hints; ErrHelp means that the user requests help.
func readTorchrun(args []string, env commandline.Environ, legacy bool) (*commandline.TorchrunCommand, error) {
	line, err := commandline.ReadTorchrun(args, env, legacy)
	if err != nil {
		return nil, withHint(err)
	}
	return line, nil
}

// withHint adds a hint to an error about a word of a command line.
func withHint(err error) error {
	var word *commandline.OptionProblem
	if !errors.As(err, &word) {
		return err
	}
	switch word.Fault {
	case commandline.Ambiguous:
		return errext.WithHint(err, "write it in full")
	case commandline.Unknown:
		if meant := Nearest(word.Option, word.Options); meant != "" {
			return errext.WithHint(err, "did you mean "+meant+"?")
		}
		return errext.WithHint(err, "the script's own arguments go after the script")
	}
	return err
}

// typed returns the launch settings with those of torchrun's flags. Relative paths count from dir.
func (l LaunchSettings) typed(line *commandline.TorchrunCommand, dir string) LaunchSettings {
	l.RankOptions, l.Auto = line.RankOptions, AutoDevices
	l.LogDir = under(dir, l.LogDir)
	return l
}

// many bounds numbers that have no other bound.
const many = 1 << 30

// pythonExec is torchrun's variable for the interpreter of the ranks.
const pythonExec = "PYTHON_EXEC"

// frameworkLaunchers returns a hook that removes a framework's launcher. The ranks run on the launcher's
// interpreter. own is gpurun's environment.
func frameworkLaunchers(ctx context.Context, own commandline.Environ) frameworkHook {
	return func(w words) (commandline.Inner, bool, error) {
		w.env = own.With(w.env)
		return w.unwrapFramework(ctx)
	}
}

func (w words) unwrapFramework(ctx context.Context) (commandline.Inner, bool, error) {
	inner, known, err := recipes.Unwrap(w.seen.Inner, w.env,
		func(name string) ([]byte, error) { return w.read(ctx, name) })
	if err != nil || !known {
		return inner, known, err
	}
	inner.Env = commandline.Environ(inner.Env).With()
	if python := w.launcherPython(); python != "" && w.env[pythonExec] == "" && inner.Kind != commandline.Program {
		inner.Env[pythonExec] = python
	}
	inner.Argv, err = w.fillSite(ctx, inner)
	return inner, true, err
}

// read reads a file as the launcher would. A file of the framework is among the packages of the launcher's
// interpreter.
func (w words) read(ctx context.Context, name string) ([]byte, error) {
	file, isSite := strings.CutPrefix(name, commandline.Site)
	if !isSite {
		return ReadFile(under(w.dir, name), largestFile)
	}
	path := w.launcherPython()
	if path != "" && w.env[pythonExec] == "" {
		return python.At(path, w.dir, inherited(w.env.Words())).ReadFile(ctx, file)
	}
	interpreter, err := w.interpreter(w.env)
	if err != nil {
		return nil, err
	}
	return interpreter.ReadFile(ctx, file)
}

// interpreter returns the interpreter of the ranks, so that gpurun queries it only once.
func (w words) interpreter(env commandline.Environ) (*python.Interpreter, error) {
	switch {
	case w.seen.Contained():
		return nil, errext.Errorf("name a file of your own",
			"gpurun does not see the files in the container that the launcher is in")
	case w.seen.Environment():
		return python.Through(append(slices.Clone(w.seen.Ask), "python"), w.dir, inherited(env.Words()), w.seen.Installs()),
			nil
	}
	path, _, err := python.Finder{Dir: w.dir, Env: env}.Find()
	if err != nil {
		return nil, err
	}
	return python.At(path, w.dir, inherited(env.Words())), nil
}

// launcherPython returns the interpreter in the first line of the launcher's script; empty for none.
func (w words) launcherPython() string {
	if w.seen.Environment() || w.seen.Contained() {
		return "" // gpurun does not see the launcher's environment
	}
	path, _, err := python.Finder{Launcher: w.seen.Inner[0], Dir: w.dir}.OfLauncher()
	if err != nil {
		return ""
	}
	return path
}

// fillSite replaces words that name files of the framework with their paths.
func (w words) fillSite(ctx context.Context, inner commandline.Inner) ([]string, error) {
	argv := slices.Clone(inner.Argv)
	var files []string
	for _, word := range argv {
		if file, isSite := strings.CutPrefix(word, commandline.Site); isSite {
			files = append(files, file)
		}
	}
	if len(files) == 0 {
		return argv, nil
	}
	interpreter, err := w.interpreter(w.env.With(inner.Env))
	if err != nil {
		return nil, err
	}
	// A job with a known framework needs the packages too: one start of the interpreter returns both.
	_, _ = interpreter.Packages(ctx)
	paths, err := interpreter.Files(ctx, files...)
	if err != nil {
		return nil, err
	}
	if i := slices.Index(paths, ""); i >= 0 {
		return nil, errext.Errorf("name an existing file, or the launcher of the environment that has the framework",
			"%s means %s, which %s does not have in its packages", inner.Wrapper, files[i], interpreter.Path())
	}
	for i, word := range argv {
		if strings.HasPrefix(word, commandline.Site) {
			argv[i], paths = paths[0], paths[1:]
		}
	}
	return argv, nil
}

// A Through has the words through which each rank is started: wrappers as typed, and options of the
// interpreter. The job's own words follow it, so that recipes see them unchanged. It is zero if there are
// none.
type Through struct {
	// Wrappers are the words of wrappers, such as "timeout", "2h", "uv", "run".
	Wrappers []string
	// Python is the interpreter's word after a wrapper that has its own environment; empty if gpurun finds
	// the interpreter.
	Python string
	// Options are the interpreter's options without -u, which gpurun adds itself.
	Options []string
	// Direct: the last wrapper starts an interpreter for the script itself.
	Direct bool

	ask      []string // starts that interpreter; nil if gpurun finds it, or if it cannot be started now
	installs bool     // starting it may install packages first
}

// behind adds wrappers before a command.
func (c *command) behind(seen commandline.SeenThrough) {
	t := &c.through
	t.Wrappers, t.Direct = seen.Words, seen.Direct
	if c.kind != Program {
		t.Options = c.options
	}
	if !seen.Environment() || c.kind == Program {
		return
	}
	t.Python = c.python
	if c.python == "" {
		t.Python = "python"
	}
	c.python, c.torchrun = "", ""
	if !seen.Contained() {
		t.ask, t.installs = append(slices.Clone(seen.Ask), t.Python), seen.Installs()
	}
}

// interpreter returns the interpreter that the command names, as typed; empty for none.
func (c *command) interpreter() string {
	if c.through.Python != "" {
		return strings.Join(append(slices.Clone(c.through.Wrappers), c.through.Python), " ")
	}
	return c.python
}

// start returns the words of each rank's command before the script, the module or the program. own is the
// interpreter that gpurun found.
func (j *Job) start(own string) []string {
	t := j.Through
	argv := slices.Clone(t.Wrappers)
	if j.Kind == Program || t.Direct {
		return argv
	}
	if t.Python != "" {
		own = t.Python
	}
	argv = append(append(append(argv, own), t.Options...), "-u")
	if j.Kind == Module {
		argv = append(argv, "-m")
	}
	return argv
}

// inlineMetadata begins the list of packages in a script (PEP 723). A wrapper that runs such a script makes
// an environment only for it.
const inlineMetadata = "\n# /// script"

// asked returns the interpreter that the wrappers find, nil if gpurun cannot start it now. It reports false
// if gpurun finds the interpreter itself.
func (j *Job) asked(env commandline.Environ) (*python.Interpreter, bool) {
	if j.Through.ask == nil {
		return nil, j.Through.Python != ""
	}
	return python.Through(j.Through.ask, j.Workdir, env, j.Through.installs), true
}

// quietTerminal gives a job under nohup no pseudo-terminal, with which nohup would write the output to a file.
// It warns that nohup after gpurun does not protect gpurun itself.
func (j *Job) quietTerminal() {
	if !slices.ContainsFunc(j.Through.Wrappers, func(w string) bool { return filepath.Base(w) == "nohup" }) {
		return
	}
	if j.Launch.TTY == "auto" {
		j.Launch.TTY = "never"
	}
	j.Warnings = append(j.Warnings,
		"nohup after gpurun keeps the job alive but not gpurun, which ends the job when the terminal is closed: write nohup gpurun …")
}

// RankScript returns the absolute path of the script that each rank runs, also after wrappers; empty if it is
// a module, or not known.
func (p *Prepared) RankScript() string {
	if p.Job.Kind != Script {
		return ""
	}
	return p.under(p.Job.Argv[0])
}

// RankModule returns the module that each rank runs, also after wrappers; empty if it is a script, or not
// known.
func (p *Prepared) RankModule() string {
	if p.Job.Kind != Module {
		return ""
	}
	return p.Job.Argv[0]
}

// interpreter finds the Python that runs the job's script or module, and why it is that one. env is the
// environment that the job inherits; the job's own variables override it. For a program, path is empty. The
// error has a hint.
func (j *Job) interpreter(env commandline.Environ) (path, why string, err error) {
	if j.Kind == Program {
		return "", "the job is a program", nil
	}
	return python.Finder{Named: j.Python, Launcher: j.torchrun, Dir: j.Workdir, Env: env.With(j.Env),
		Look: exec.LookPath}.Find()
}

// PythonBy is the place where the user names the job's interpreter, or could: "command" for the typed words,
// "--python", or a key of train.toml.
func (j *Job) PythonBy() string {
	switch {
	case j.named && j.Path != "":
		return "job." + j.origin.key
	case j.named:
		return "command"
	case j.Path != "":
		return "job.python"
	}
	return "--python"
}
