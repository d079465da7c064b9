package job

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/gpurun/gpurun/launcher/commandline"
	"github.com/gpurun/gpurun/launcher/errext"
	"github.com/gpurun/gpurun/launcher/python"
)

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
	if file := under(dir, j.Argv[0]); j.Python == "" && env[pythonExec] == "" && j.Kind == Script && python.Executable(file) == nil && pythonScript(file) {
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
