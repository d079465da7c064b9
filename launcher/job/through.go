package job

import (
	"path/filepath"
	"slices"
	"strings"

	"github.com/gpurun/gpurun/launcher/commandline"
	"github.com/gpurun/gpurun/launcher/environ"
	"github.com/gpurun/gpurun/launcher/python"
)

// A Through is what each rank is started through: wrappers as they were typed, and the
// options of an interpreter. The job's own words stand behind it, so that recipes see
// them as they are. It is zero where there is nothing of the kind.
type Through struct {
	// Wrappers are the words of wrappers: "timeout", "2h", "uv", "run".
	Wrappers []string
	// Python is the interpreter's word behind a wrapper that has an environment of its
	// own; empty where gpurun finds the interpreter.
	Python string
	// Options are those of the interpreter, without -u, which gpurun gives itself.
	Options []string
	// Direct: the last wrapper runs the script by an interpreter that it starts itself.
	Direct bool

	ask      []string // starts that interpreter; nil where gpurun finds it, or nobody can be asked
	installs bool     // it may install packages first
}

// behind puts a command behind the wrappers that were seen.
func (c *command) behind(seen commandline.Seen) {
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

// interpreter is the one that the command names, as typed; empty where it names none.
func (c *command) interpreter() string {
	if c.through.Python != "" {
		return strings.Join(append(slices.Clone(c.through.Wrappers), c.through.Python), " ")
	}
	return c.python
}

// start is what the command of each rank begins with, before the script, the module or
// the program. own is the interpreter that gpurun found.
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

// inlineMetadata is how a script begins the list of the packages that it needs (PEP
// 723): a wrapper that runs it makes an environment for it alone.
const inlineMetadata = "\n# /// script"

// asked is the interpreter behind the wrappers that find one, nil where it cannot be
// asked from here; false where gpurun finds it.
func (j *Job) asked(env environ.Vars) (*python.Interpreter, bool) {
	if j.Through.ask == nil {
		return nil, j.Through.Python != ""
	}
	return python.Through(j.Through.ask, j.Workdir, env, j.Through.installs), true
}

// quietTerminal keeps a pseudo-terminal from a job behind nohup, which would write its
// output to a file there, and says what nohup does for gpurun itself.
func (j *Job) quietTerminal() {
	if !slices.ContainsFunc(j.Through.Wrappers, func(w string) bool { return filepath.Base(w) == "nohup" }) {
		return
	}
	if j.Launch.TTY == "auto" {
		j.Launch.TTY = "never"
	}
	j.Warnings = append(j.Warnings, "nohup behind gpurun keeps the job alive, and not gpurun, which ends it when the terminal is closed: write nohup gpurun …")
}

// RankScript is the absolute path of the script that each rank runs, also behind
// wrappers; empty where that is a module, or not known.
func (p *Prepared) RankScript() string {
	if p.resolved.job.Kind != Script {
		return ""
	}
	return p.resolved.under(p.resolved.job.Argv[0])
}

// RankModule is the module that each rank runs, also behind wrappers; empty where that
// is a script, or not known.
func (p *Prepared) RankModule() string {
	if p.resolved.job.Kind != Module {
		return ""
	}
	return p.resolved.job.Argv[0]
}
