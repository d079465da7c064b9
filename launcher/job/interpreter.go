package job

import (
	"os/exec"

	"github.com/gpurun/gpurun/launcher/environ"
	"github.com/gpurun/gpurun/launcher/python"
)

// interpreter finds the Python that runs the job's script or module, and says where
// the path comes from. env is what the job inherits, over which its own variables
// count. A program has no interpreter: path is empty then. The error has a hint.
func (j *Job) interpreter(env environ.Vars) (path, why string, err error) {
	if j.Kind == Program {
		return "", "the job is a program", nil
	}
	return find(python.Finder{Named: j.Python, Launcher: j.torchrun, Dir: j.Workdir, Env: env.With(j.Env), Look: exec.LookPath})
}

// find makes an error of the search the user's to mend.
func find(s python.Finder) (path, why string, err error) {
	return s.Find()
}

// executable says why a file cannot be run.
func executable(path string) error { return python.Executable(path) }

// PythonBy is where the user names the job's interpreter, or could: "command" for the words
// that were typed, "--python", or a key of train.toml.
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
