package job

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"unicode"
)

// readJob reads [job]: the command and where it runs.
func (r *reader) readJob() {
	t, j := r.table("job"), r.job
	j.Name = t.text("name", strings.TrimSuffix(filepath.Base(j.Path), ".toml"))
	if why := badName(j.Name); why != "" {
		if t.has("name") {
			t.bad("name", "%s", why)
		} else {
			j.Name = "job"
		}
	}
	j.Workdir = r.dir
	if dir := t.file("workdir", ""); dir != "" {
		j.Workdir = r.path(dir)
	}
	if info, err := os.Stat(j.Workdir); err != nil || !info.IsDir() {
		t.bad("workdir", "%s is not a directory", j.Workdir)
	}
	j.Env = t.texts("env")
	j.Python = r.program(t.file("python", ""))
	if recipe := t.file("recipe", ""); recipe != "" {
		j.Recipe = recipe
	}
	if strings.Contains(j.Recipe, "/") || strings.HasSuffix(j.Recipe, ".toml") {
		j.Recipe = r.path(j.Recipe)
	}
	r.readCommand(t)
	r.needPython(t)
	r.warnOfRankVariables()
}

// badName says why a name cannot be that of a folder.
func badName(name string) string {
	switch {
	case name == "":
		return "is empty"
	case name == "." || name == ".." || strings.Contains(name, "/"):
		return fmt.Sprintf("%q cannot name a folder", name)
	case name == ".outbox" || name == ".gitignore": // beside the jobs' folders in .gpurun
		return fmt.Sprintf("%q is the name of something of gpurun's own", name)
	case len(name) > 100:
		return "is longer than 100 bytes"
	case strings.ContainsFunc(name, unicode.IsControl):
		return "holds control characters"
	}
	return ""
}

// path makes a path of the file absolute. Relative ones count from the file.
func (r *reader) path(p string) string {
	if p == "" || filepath.IsAbs(p) {
		return p
	}
	return filepath.Join(r.dir, p)
}

// program makes a program's path absolute, and leaves bare names to PATH.
func (r *reader) program(p string) string {
	if strings.Contains(p, "/") {
		return r.path(p)
	}
	return p
}

// warnOfRankVariables says which variables of the job have no effect, where it is
// certain that its processes are ranks.
func (r *reader) warnOfRankVariables() {
	if r.line != nil && !r.self() {
		r.job.Warnings = append(r.job.Warnings, r.job.idleVariables()...)
	}
}

// idleVariables are sentences about variables of the job that have no effect on ranks.
func (j *Job) idleVariables() []string {
	var sentences []string
	for _, name := range rankVariables {
		if _, set := j.Env[name]; set {
			sentences = append(sentences, name+" in the job's environment has no effect: gpurun sets it for each rank")
		}
	}
	return sentences
}

// rankVariables are set by gpurun for each rank; the user's values are lost.
var rankVariables = []string{
	"RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_RANK", "GROUP_WORLD_SIZE", "ROLE_RANK",
	"ROLE_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT",
}

// under makes a path absolute, empty ones aside.
func under(dir, path string) string {
	if path == "" || filepath.IsAbs(path) {
		return path
	}
	return filepath.Join(dir, path)
}
