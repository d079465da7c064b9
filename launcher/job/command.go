package job

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/gpurun/gpurun/launcher/commandline"
	"github.com/gpurun/gpurun/launcher/errext"
	"github.com/gpurun/gpurun/launcher/python"
)

// readCommand reads whichever of script, module, program and command is set.
func (r *reader) readCommand(t *fileTable) {
	var set []string
	for _, key := range []string{"script", "module", "program", "command"} {
		if t.Has(key) {
			set = append(set, key)
		}
	}
	args := t.Words("args")
	if len(set) == 0 {
		r.problems = append(r.problems, Problem{Key: []string{"job"},
			Message: "has no command; set job.script, job.module, job.program or job.command"})
		return
	}
	for _, key := range set[1:] {
		r.problems = append(r.problems, Problem{Key: []string{"job", key},
			Message: fmt.Sprintf("contradicts job.%s: a job has one command", set[0])})
	}
	self := r.self()
	for _, key := range set {
		switch key {
		case "script":
			r.readScript(t, args, self)
		case "module":
			r.readModule(t, args, self)
		case "program":
			r.readProgram(t, args, self)
		case "command":
			if t.Has("args") {
				t.Bad("args", "goes into job.command, which has the whole command")
			}
			r.readLine(t, self)
		}
	}
}

// self reports whether the command starts its own ranks.
func (r *reader) self() bool {
	ranks, _ := r.table("launch").Get("ranks")
	return ranks == "self"
}

func (r *reader) readScript(t *fileTable, args []string, self bool) {
	script := t.Filled("script")
	if script == "" {
		return
	}
	r.job.Kind, r.job.Argv = Script, append([]string{script}, args...)
	r.job.origin = origin{key: "args"}
	more := ""
	if strings.Contains(script, " ") {
		more = "; arguments go into job.args"
	}
	r.needScript(t, "script", more)
	r.refuseLauncher(t, "script", self)
}

// needScript reports a missing script, unless the working directory is missing too.
func (r *reader) needScript(t *fileTable, key, hint string) {
	j := r.job
	path := under(j.Workdir, j.Argv[0])
	switch {
	case j.Kind != Script || !isFolder(j.Workdir):
	case !exists(path):
		if meant := nearestFile(path); meant != "" && hint == "" {
			hint = fmt.Sprintf(" (did you mean %q?)", filepath.Base(meant))
		}
		t.Bad(key, "%s does not exist%s", path, hint)
	case isFolder(path):
		t.Bad(key, "%s is a folder, not a script", path)
	case notPython(path) != "":
		t.Bad(key, "%s is %s, not a Python script; a program goes into job.program", path, notPython(path))
	}
}

// needProgram reports a missing program if it is given by its path. A bare name is looked up in PATH only
// when the job starts: a plan can be made without the program. So is a program after a wrapper with its own
// environment.
func (r *reader) needProgram(t *fileTable, key string) {
	j := r.job
	if j.Kind != Program || !isFolder(j.Workdir) || !strings.Contains(j.Argv[0], "/") {
		return
	}
	if err := python.Executable(under(j.Workdir, j.Argv[0])); err != nil {
		t.Bad(key, "%v", err)
	}
}

// Startable returns why the program of a job cannot be started, or why its metrics cannot be written. It is
// called before anything is created for the job. A script or a module can always be started. env is the
// ranks' environment in the form of os.Environ. The error has a hint.
func Startable(j *Job, env []string) error {
	if err := j.textFolder(); err != nil {
		return err
	}
	program := ""
	switch {
	case len(j.Through.Wrappers) > 0:
		program = j.Through.Wrappers[0]
	case j.Kind == Program:
		program = j.Argv[0]
	default:
		return nil
	}
	refuse := func(message string) error {
		return errext.Errorf("name a program that exists and is executable", "%s", message)
	}
	if strings.Contains(program, "/") {
		if err := python.Executable(under(j.Workdir, program)); err != nil {
			return refuse(err.Error())
		}
		return nil
	}
	if _, err := (python.Finder{Dir: j.Workdir, Env: commandline.ParseEnviron(env)}).InPath(program); err != nil {
		return refuse(err.Error())
	}
	return nil
}

// needPython reports that the interpreter in the job is missing. A bare name, and an interpreter that the
// user does not name, are looked up later.
func (r *reader) needPython(t *fileTable) {
	value, _ := t.Get("python")
	path, named := value.(string)
	if !named || !strings.Contains(path, "/") || strings.HasPrefix(path, "~") || r.job.Kind == Program {
		return
	}
	if err := python.Executable(r.job.Python); err != nil {
		t.Bad("python", "%v", err)
	}
}

func (r *reader) readModule(t *fileTable, args []string, self bool) {
	module := t.Filled("module")
	if module == "" {
		return
	}
	if strings.ContainsAny(module, " /") || strings.HasSuffix(module, ".py") {
		t.Bad("module", "%q is not a module; write it with dots, such as \"pkg.train\", or use job.script", module)
		return
	}
	r.job.Kind, r.job.Argv = Module, append([]string{module}, args...)
	r.job.origin = origin{key: "args"}
	r.refuseLauncher(t, "module", self)
}

// readProgram reads a program with its arguments. For torchrun, it reads the command that torchrun would
// start on each rank.
func (r *reader) readProgram(t *fileTable, args []string, self bool) {
	typedWords := t.Words("program")
	if len(typedWords) == 0 || typedWords[0] == "" {
		value, _ := t.Get("program")
		if _, ok := value.([]any); ok && (len(typedWords) > 0 || !hasElements(value)) {
			t.Bad("program", "names no program")
		}
		return
	}
	own := len(typedWords)
	typedWords = append(slices.Clone(typedWords), args...)
	r.job.Kind, r.job.Argv = Program, typedWords
	r.job.origin = origin{key: "program", words: typedWords, own: own}
	if self {
		r.needProgram(t, "program")
		return
	}
	c, err := unwrapTorchrun(typedWords, r.job.Env)
	if c == nil && err == nil {
		r.needProgram(t, "program")
		r.refuseLauncher(t, "program", self)
		return
	}
	r.take(t, "program", c, err)
}

// hasElements reports whether an array is not empty.
func hasElements(v any) bool {
	array, _ := v.([]any)
	return len(array) > 0
}

// readLine reads a command as typed into a shell.
func (r *reader) readLine(t *fileTable, self bool) {
	line := t.Filled("command")
	if line == "" {
		return
	}
	r.job.origin = originOfLine(line, r.variable)
	c, err := commandFrom(line, words{self: self, env: r.job.Env, dir: r.job.Workdir, hook: r.hook}, r.variable)
	if c != nil && len(c.used) > 0 {
		// The digest has the line as typed, so that a change of a variable does not make it another job.
		r.job.digested, r.job.ranksTyped, r.job.variables = []string{line}, c.line != nil, c.used
	}
	r.take(t, "command", c, err)
}

// variable returns the value of a variable in job.command, from the job's own variables or from gpurun's
// environment.
func (r *reader) variable(name string) (string, bool) {
	if value, set := r.job.Env[name]; set {
		return value, true
	}
	return r.env.Lookup(name)
}

// take makes a parsed command the job's, or reports its error.
func (r *reader) take(t *fileTable, key string, c *command, err error) {
	switch {
	case errors.Is(err, ErrHelp):
		t.Bad(key, "asks for torchrun's help")
		return
	case err != nil:
		t.Bad(key, "%s", hinted(err))
		return
	}
	j := r.job
	r.line = c.line
	for name, value := range c.env {
		if old, both := j.Env[name]; both && old != value {
			t.BadAt([]string{"env", name}, "contradicts job.%s, which sets it to %q", key, value)
		}
	}
	if named := c.interpreter(); named != "" && j.Python != "" {
		t.Bad("python", "contradicts job.%s, which names %q", key, named)
	}
	j.adopt(c)
	r.needScript(t, key, "")
	r.needProgram(t, key)
}

// adopt makes a parsed command the job's.
func (j *Job) adopt(c *command) {
	j.Kind, j.Argv, j.Through, j.torchrun, j.nodes = c.kind, c.argv, c.through, c.torchrun, c.nodes
	j.named = c.interpreter() != ""
	if j.digested == nil && c.typed != nil {
		j.digested = append([]string{string(Program)}, unnumbered(c.typed, len(c.argv))...)
	}
	for name, value := range c.env {
		if j.Env == nil {
			j.Env = map[string]string{}
		}
		j.Env[name] = value
	}
	switch {
	case strings.Contains(c.python, "/"):
		// Relative paths count from the working directory, as in a shell.
		j.Python = under(j.Workdir, c.python)
	case c.python != "":
		j.Python = c.python
	}
	j.Warnings = append(j.Warnings, c.warnings...)
	if c.line != nil {
		j.Launch = j.Launch.typed(c.line, j.Workdir)
		j.Warnings = append(j.Warnings, c.line.Warnings...)
	}
	j.Launch.startedBy(c.launcher, c.line != nil)
	j.quietTerminal()
}

// hinted returns a message and its hint in one line.
func hinted(err error) string {
	if hint := errext.Hint(err); hint != "" {
		return err.Error() + "; " + hint
	}
	return err.Error()
}

// refuseLauncher reports a launcher that would be started on each rank.
func (r *reader) refuseLauncher(t *fileTable, key string, self bool) {
	if self {
		return
	}
	if err := refuseInner(r.job.Kind, r.job.Argv); err != nil {
		t.Bad(key, "%s", hinted(err))
	}
}

// exists reports whether a script exists: without it the job would end in its first second.
func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// isFolder reports whether a path is a folder.
func isFolder(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}
