package job

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/gpurun/gpurun/launcher/commandline"
	"github.com/gpurun/gpurun/launcher/errext"
	"github.com/gpurun/gpurun/launcher/python"
)

// A typedLine is gpurun's command line before another command: a launcher, an interpreter, a wrapper, or any
// program.
type typedLine struct {
	words
	line *commandline.TorchrunCommand // gpurun's flags
	own  []string                     // gpurun's flags as typed
	// asProgram: a "--" precedes the command, so that no word of it is a verb.
	asProgram bool
}

// readTyped reads gpurun's flags, and the words after them.
func readTyped(args []string, env commandline.Environ, dir string) (typedLine, error) {
	// torchrun's variables apply to torchrun: if it is typed, its own reader reads them.
	only := commandline.Environ{}
	if grace, set := env["TORCH_ELASTIC_SHUTDOWN_TIMEOUT"]; set {
		only["TORCH_ELASTIC_SHUTDOWN_TIMEOUT"] = grace
	}
	line, err := readTorchrun(args, only, false)
	if err != nil {
		return typedLine{}, err
	}
	t := typedLine{line: line, own: args[:line.From], words: words{typed: args[line.From:], inherited: env, dir: dir}}
	if n := len(t.own); n > 0 && t.own[n-1] == "--" {
		t.own, t.asProgram = t.own[:n-1], true
	}
	return t, nil
}

// isCommand reports whether the words are a whole command, not a script with its arguments as torchrun takes
// it. The first word of a command is known to start others, or is an executable file but no Python script, or
// is in PATH and is no file in the working directory.
func (t typedLine) isCommand() bool {
	first := t.typed[0]
	switch {
	case t.line.Kind != Script, first == "", strings.HasSuffix(first, ".py"), isTOML(first):
		return false
	case commandline.Known.Starts(first):
		return true
	case strings.Contains(first, "/"):
		file := under(t.dir, first)
		return python.Executable(file) == nil && !pythonScript(file)
	}
	if info, err := os.Stat(under(t.dir, first)); err == nil && !info.IsDir() {
		return false
	}
	_, err := python.Finder{Dir: t.dir, Env: t.inherited}.InPath(first)
	return err == nil
}

// pythonScript reports by its first line whether a file without the extension .py is a Python script.
func pythonScript(file string) bool {
	words, _ := interpreterLine(file)
	return slices.ContainsFunc(words, python.Named)
}

// interpreterLine returns the words after #! in a file's first line; false if it has none.
func interpreterLine(file string) ([]string, bool) {
	first, _, _ := strings.Cut(beginning(file), "\n")
	line, is := strings.CutPrefix(first, "#!")
	if !is {
		return nil, false
	}
	return strings.Fields(line), true
}

// beginning returns the first bytes of a file; none if it cannot be read.
func beginning(file string) string {
	f, err := os.Open(file)
	if err != nil {
		return ""
	}
	defer f.Close()
	start := make([]byte, 256)
	n, _ := f.Read(start)
	return string(start[:n])
}

// throughShell puts a shell in front of a shell script whose first line does not say what runs it, as the shell does in
// which the line was typed: the system refuses to execute such a file.
func (w words) throughShell(argv []string) []string {
	first := argv[0]
	start := beginning(under(w.dir, first))
	if start == "" || !strings.Contains(first, "/") || notPython(first) != shellScript || strings.HasPrefix(start, "#!") {
		return argv
	}
	shell := "sh"
	if exists("/bin/bash") {
		shell = "bash"
	}
	return append([]string{shell}, argv...)
}

// job makes a job of the command, with the same meaning as without gpurun.
func (t typedLine) job(ctx context.Context, j *Job) (*Job, error) {
	if err := t.misplaced(); err != nil {
		return nil, err
	}
	t.hook = frameworkLaunchers(ctx, t.inherited)
	c, err := t.command()
	if err != nil {
		return nil, t.onLine(err)
	}
	j.Workdir = t.dir
	if named := c.interpreter(); named != "" && t.line.Python != "" {
		return nil, errext.Errorf("keep one of them", "--python contradicts the command, which names %s", named)
	}
	if err := t.takeFlags(j, c); err != nil {
		return nil, err
	}
	j.Name = t.name(j)
	j.origin.words, j.origin.line = slices.Concat([]string{"gpurun"}, t.line.Flags, t.typed), t.line
	if err := judge(j); err != nil {
		return nil, err
	}
	j.identify(nil)
	return j, nil
}

// verb refuses a verb of gpurun in place of a program or a script.
func (t typedLine) verb() error {
	if word := t.typed[0]; t.line.Kind == Script && !t.asProgram && slices.Contains(commandline.Verbs, word) {
		return errext.Errorf("give the verb first; a program of that name goes behind --: gpurun -- "+word+" …",
			"%s is a verb of gpurun: put it before the flags", word)
	}
	return nil
}

// misplaced refuses a command that starts others elsewhere. The error has the line to type instead.
func (t typedLine) misplaced() error {
	seen := commandline.Known.SeeThrough(t.typed)
	before := t.typed[:len(t.typed)-len(seen.Inner)]
	if len(seen.Inner) > len(t.typed) {
		return nil // uv run -m
	}
	return misplaced(before, seen.Inner, append([]string{"gpurun"}, t.own...), t.typed)
}

// misplaced refuses a command that starts others elsewhere, as ProgramTable.Misplaced. typed is the whole line.
func misplaced(before, words, own, typed []string) error {
	m, ok := commandline.Known.Misplaced(before, words, own)
	if !ok {
		return nil
	}
	which := m.Where
	hint := "put gpurun behind " + m.Name + " and its options, in front of the command that it starts"
	switch {
	case m.Line != "":
		hint = m.Line
	case m.Script != "":
		hint = "put gpurun into " + m.Script + ", in front of the command that trains, and type: " +
			commandline.Paste(typed...)
	case m.Batch:
		hint = "put gpurun into the script, in front of the command that trains"
	}
	if m.Needs != "" {
		which += ": " + m.Needs
	}
	return errext.Errorf(hint, "gpurun cannot run in front of %s, which %s", m.Name, which)
}

// onLine adapts an error about a command to a command line, which has no table [launch].
func (t typedLine) onLine(err error) error {
	if hint := errext.Hint(err); !strings.Contains(hint, "launch.ranks") {
		return err
	}
	const file = `the command into a train.toml: job.command, and launch.ranks = "self"`
	if commandline.Known.Starts(commandline.Known.SeeThrough(t.typed).Inner[0]) {
		return errext.WithHint(err, "put "+file)
	}
	return errext.WithHint(err, "put gpurun in front of the launcher itself, or "+file)
}

// shellScript returns the script that a shell runs as the job, or the shell; empty for other jobs.
func (j *Job) shellScript() string {
	isShell := func(word string) bool { return slices.Contains(commandline.Shells, filepath.Base(word)) }
	switch {
	case j.Kind != Program:
		return ""
	case isShell(j.Argv[0]) && len(j.Argv) > 1 && !strings.HasPrefix(j.Argv[1], "-"):
		return j.Argv[1]
	case isShell(j.Argv[0]):
		return j.Argv[0]
	}
	if words, _ := interpreterLine(under(j.Workdir, j.Argv[0])); slices.ContainsFunc(words, isShell) {
		return j.Argv[0]
	}
	return ""
}

// name returns the job's name, from its script, even if a shell runs that.
func (t typedLine) name(j *Job) string {
	if j.Kind == Program && slices.Contains(commandline.Shells, nameOf(j.Argv[0])) && len(j.Argv) > 1 &&
		!strings.HasPrefix(j.Argv[1], "-") {
		return nameOf(j.Argv[1])
	}
	return nameOf(j.Argv[0])
}

// takeFlags adds the command to the job, and then the flags of gpurun and torchrun before it.
func (t typedLine) takeFlags(j *Job, c *command) error {
	launched := c.line != nil && c.launcher.Wrapper == ""
	var set []string
	for name, source := range t.line.Set {
		if !commandline.IsOwnOption(name) && name != "python" && strings.HasPrefix(source, "-") {
			set = append(set, source)
			if launched {
				return errext.Errorf("put it after torchrun, with torchrun's flags", "%s is before torchrun", source)
			}
			if c.line != nil && c.line.Set[name] != "" {
				return errext.Errorf("keep one of them", "%s contradicts %s", source, c.line.Set[name])
			}
		}
	}
	j.adopt(c)
	if t.line.Python != "" {
		if j.Python = t.line.Python; strings.Contains(j.Python, "/") {
			j.Python = under(t.dir, j.Python)
		}
	}
	if launched {
		return nil
	}
	l := j.Launch
	j.nodes = t.line.Nodes.Over(j.nodes)
	j.Launch = l.typed(t.line, t.dir)
	j.Launch.Auto = l.Auto
	if t.line.Set["nproc-per-node"] == "" {
		j.Launch.NprocPerNode = l.NprocPerNode
	} else {
		j.Launch.askedFor(false)
	}
	if len(set) > 0 {
		j.Warnings = append(j.Warnings, t.line.Warnings...)
	}
	return nil
}

// Open reads a command line: gpurun's flags, then a train.toml, a command as typed without gpurun, or
// arguments as for torchrun. env is gpurun's environment in the form of os.Environ, dir its working
// directory. For the policy, flags override the train.toml, which overrides the user's configuration, which
// overrides the site's. Errors have hints, or are an *Error, or ErrHelp if the user requests help.
func Open(ctx context.Context, args, env []string, dir string) (*Job, Own, error) {
	j, own, err := OpenToRun(ctx, args, env, dir)
	if err == nil {
		err = j.Refused()
	}
	return j, own, err
}

// OpenToRun is like Open, but accepts a job with settings that the site does not allow: Refused has them, and the
// job has the site's in their place. A run that is resumed continues with these.
func OpenToRun(ctx context.Context, args, env []string, dir string) (*Job, Own, error) {
	vars := commandline.ParseEnviron(env)
	t, err := readTyped(args, vars, dir)
	if err != nil {
		return nil, Own{}, err
	}
	file, own, err := t.trainFile()
	if err == nil {
		err = t.verb()
	}
	if err == nil {
		err = checkPipeline(own, t.line.Set)
	}
	if err != nil {
		return nil, own, err
	}
	j, err := Configured(vars)
	if err != nil {
		return nil, own, err
	}
	switch {
	case file != "":
		j, err = load(file, base{job: j, env: vars, hook: frameworkLaunchers(ctx, vars)}, checkKnobs,
			checkRecipe(filepath.Dir(file)))
	case t.isCommand():
		j, err = t.job(ctx, j)
	default:
		j, err = fromArgs(args, vars, dir, j)
	}
	if err != nil {
		return nil, own, err
	}
	if err := j.takePolicy(own); err != nil {
		return nil, own, err
	}
	j.holdFlags(own)
	j.takeNotify(vars)
	return j, own, nil
}

// offVariable, set to "off", turns gpurun off: it only executes the command after it.
const offVariable = "GPURUN"

// An Exec is a program to execute in place of gpurun.
type Exec struct {
	Path string
	Argv []string
}

// Off returns the program to execute if the environment turns gpurun off: the words after gpurun and its
// flags, unchanged, or for a script, torchrun with the same flags. It is nil if gpurun is on. env is gpurun's
// environment in the form of os.Environ, dir its working directory. The error has a hint.
func Off(args, env []string, dir string) (*Exec, error) {
	vars := commandline.ParseEnviron(env)
	if vars[offVariable] != "off" {
		return nil, nil
	}
	t, err := readTyped(args, vars, dir)
	if err == nil {
		err = t.verb()
	}
	if err != nil {
		return nil, err
	}
	if t.line.Kind == Script && isTOML(t.typed[0]) {
		return nil, errext.Errorf("put gpurun in front of the job's command, or leave the variable out",
			"%s=off: %s is a file for gpurun, not a command", offVariable, t.typed[0])
	}
	argv := t.typed
	if t.isCommand() {
		argv = t.throughShell(argv)
	} else if argv, err = t.torchrun(); err != nil {
		return nil, err
	}
	path, err := python.Finder{Dir: dir, Env: vars}.InPath(argv[0])
	if err != nil {
		return nil, errext.Errorf("name a program that exists and is executable", "%s=off: %w", offVariable, err)
	}
	return &Exec{Path: path, Argv: argv}, nil
}

// torchrun returns the torchrun command for a script with torchrun's flags.
func (t typedLine) torchrun() ([]string, error) {
	rest := slices.Concat(t.line.Torchrun, t.typed)
	search := python.Finder{Named: t.line.Python, Dir: t.dir, Env: t.inherited,
		Look: python.Finder{Dir: t.dir, Env: t.inherited}.InPath}
	if t.line.Python == "" {
		if _, err := search.InPath("torchrun"); err == nil {
			return append([]string{"torchrun"}, rest...), nil
		}
	}
	path, _, err := search.Find()
	if err != nil {
		return nil, err
	}
	return append([]string{path, "-m", "torch.distributed.run"}, rest...), nil
}

// Own has the flags that only gpurun has. They may appear among torchrun's flags, before the script or the
// train.toml.
type Own = commandline.Own

// trainFile returns gpurun's own flags, and the path of the train.toml in the words; empty if they are
// something else. gpurun's flags may also follow the train.toml, since nothing else can. Errors have hints.
func (t typedLine) trainFile() (file string, own Own, err error) {
	line := t.line
	if line.Kind != Script || !isTOML(line.Command[0]) {
		return "", line.Own, nil
	}
	if len(line.Command) > 1 {
		if err := after(line, line.Command[0], line.Command[1:]); err != nil {
			return "", line.Own, err
		}
	}
	for _, name := range slices.Sorted(maps.Keys(line.Set)) {
		if source := line.Set[name]; !commandline.IsOwnOption(name) && strings.HasPrefix(source, "-") {
			return "", line.Own, errext.Errorf(inFile(name, source)+" in "+line.Command[0],
				"%s goes with a script, not with a train.toml", source)
		}
	}
	return line.Command[0], line.Own, nil
}

// inFile returns how to write a flag of torchrun in a train.toml.
func inFile(name, source string) string {
	key := strings.ReplaceAll(name, "-", "_")
	for _, section := range []string{"launch", "job"} {
		if Said(section, key) != nil {
			return "set " + section + "." + key
		}
	}
	return fmt.Sprintf("write job.command = \"torchrun %s …\"", source)
}

func isTOML(name string) bool { return strings.EqualFold(filepath.Ext(name), ".toml") }

// after reads the flags after a train.toml.
func after(line *commandline.TorchrunCommand, file string, words []string) error {
	rest, err := line.More(words)
	var problem *commandline.OptionProblem
	if !errors.As(err, &problem) && len(rest) == 0 {
		if err != nil {
			return withHint(err)
		}
		return nil
	}
	word := words[0]
	if len(rest) > 0 {
		word = rest[0]
	}
	hint := "put the job's arguments into job.args"
	if isTOML(word) {
		hint = "gpurun runs one job: start it once for each"
	}
	return errext.Errorf(hint, "unexpected argument %[2]q after %[1]s", file, word)
}

// fromArgs reads a command line in torchrun's form, flags, then a script and its arguments, into the job j,
// which has no command yet. The PET_* variables in env are the flags' defaults. dir is the absolute working
// directory. Errors have hints; ErrHelp where -h or --help precedes the script.
func fromArgs(args []string, env commandline.Environ, dir string, j *Job) (*Job, error) {
	line, err := readTorchrun(args, env, false)
	if err != nil {
		return nil, err
	}
	j.Kind, j.Argv = line.Kind, slices.Clone(line.Command)
	j.origin.words, j.origin.line = slices.Concat([]string{"gpurun"}, line.Flags, line.Command), line
	j.Workdir = dir
	j.Name = nameOf(j.Argv[0])
	j.Launch, j.nodes = j.Launch.typed(line, dir), line.Nodes
	j.Python = line.Python
	if strings.Contains(j.Python, "/") {
		j.Python = under(dir, j.Python)
	}
	j.Warnings = append(j.Warnings, line.Warnings...)
	if err := judge(j); err != nil {
		return nil, err
	}
	if file := under(dir, j.Argv[0]); j.Python == "" && env[pythonExec] == "" && j.Kind == Script &&
		python.Executable(file) == nil && pythonScript(file) {
		// A program in an environment, such as pip creates, runs on that environment's Python.
		j.Python, _, _ = python.Finder{Launcher: file, Dir: dir}.OfLauncher()
	}
	j.identify(nil)
	return j, nil
}

// nameOf makes a job's name from a script, module or program.
func nameOf(first string) string {
	name := filepath.Base(first)
	name = strings.TrimSuffix(strings.TrimSuffix(name, ".py"), ".sh")
	if badName(name) != "" {
		return "job"
	}
	return name
}

// judge refuses commands that must be mistakes.
func judge(j *Job) error {
	first := j.Argv[0]
	switch {
	case first == "":
		return errext.Errorf("", "the script's name is empty")
	case j.Kind != Script:
		return refuseInner(j.Kind, j.Argv)
	case isFolder(under(j.Workdir, first)):
		hint := "name a script, or a train.toml"
		if !strings.ContainsAny(first, "/.") {
			hint = fmt.Sprintf("name a script, or a train.toml; no program %s is in PATH: if it is one, activate the environment that has it", first)
		}
		return errext.Errorf(hint, "%s is a folder, not a script", under(j.Workdir, first))
	case notPython(first) != "":
		return errext.Errorf("name a script or a train.toml; a program is started by its path, once it is executable: gpurun ./…, or once a rank with --no-python",
			"%s is %s, not a Python script", first, notPython(first))
	case exists(under(j.Workdir, first)):
		return refuseInner(j.Kind, j.Argv)
	}
	hint := ""
	if name, _, assigned := strings.Cut(first, "="); assigned && !strings.ContainsAny(name, "/.- ") {
		hint = "write variables in front of gpurun: " + name + "=… gpurun …"
	} else if meant := nearestFile(under(j.Workdir, first)); meant != "" {
		hint = "did you mean " + filepath.Join(filepath.Dir(first), filepath.Base(meant)) + "?"
	} else if strings.HasSuffix(first, ".toml") {
		hint = "name an existing train.toml"
	} else if !strings.HasSuffix(first, ".py") && !strings.Contains(first, "/") {
		hint = "gpurun has no such verb (gpurun help lists them), and no script or program of that name was found; a module goes with -m, a program with --no-python"
	}
	return errext.Errorf(hint, "%s does not exist", under(j.Workdir, first))
}

// shellScript describes a file with a shell's extension.
const shellScript = "a shell script"

// notPython describes a file that Python cannot run, by its name; empty if the file may be a script.
func notPython(name string) string {
	switch strings.ToLower(filepath.Ext(name)) {
	case ".sh", ".bash", ".sbatch", ".slurm":
		return shellScript
	case ".yaml", ".yml", ".json", ".ini", ".cfg":
		return "a configuration file"
	case ".ipynb":
		return "a notebook"
	}
	return ""
}
