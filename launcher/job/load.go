package job

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/gpurun/gpurun/launcher/commandline"
	"github.com/gpurun/gpurun/launcher/errext"
	"github.com/gpurun/gpurun/recipes/edit"
)

// A base has the inputs for reading a train.toml, besides the file.
type base struct {
	job  *Job                // values for keys that the file does not set
	env  commandline.Environ // gpurun's own, for the variables in job.command
	hook frameworkHook       // removes launchers from job.command; may be nil
	name string              // the file's name as the user wrote it
}

// load reads the train.toml at path. The error is an *Error with all problems of the file, including those
// from checks, or an error with a hint if the file cannot be read.
func load(path string, b base, checks ...Check) (*Job, error) {
	text, err := read(path)
	if err != nil {
		return nil, err
	}
	b.name = path
	absolute, err := filepath.Abs(path)
	if err != nil {
		return nil, fmt.Errorf("find %s: %w", path, err)
	}
	j, wrong := parse(absolute, text, b, checks)
	if len(wrong) > 0 {
		return nil, &Error{File: path, Kind: "job that can be started", Faults: wrong}
	}
	return j, nil
}

// parse makes a job from the text of a file.
func parse(absolute string, text []byte, b base, checks []Check) (*Job, []Fault) {
	root, fault := edit.DecodeTOML(text, "a train.toml")
	if fault != nil {
		return nil, hushed(text, []Fault{*fault})
	}
	r := reader{root: root, dir: filepath.Dir(absolute), job: b.job, hook: b.hook, env: b.env, sections: sections}
	r.job.Path = absolute
	r.read()
	for _, check := range checks {
		r.problems = append(r.problems, check(root)...)
	}
	loose := r.job.take(layer{path: absolute, text: text, root: root})
	if len(r.problems) > 0 {
		return nil, hushed(text, edit.Faults(text, r.problems))
	}
	r.job.refuse(b.name, "job that this site allows", text, loose)
	r.job.identify(root)
	return r.job, nil
}

// read returns the text of the file, without a byte order mark.
func read(path string) ([]byte, error) {
	text, err := ReadFile(path, largestJob)
	if err != nil {
		return nil, unreadable(path, err)
	}
	return []byte(strings.TrimPrefix(string(text), "\uFEFF")), nil
}

// unreadable returns the error for a file that cannot be read.
func unreadable(path string, err error) error {
	var inner *fs.PathError
	if errors.As(err, &inner) {
		err = inner.Err
	}
	hint := "name a train.toml, a regular file"
	switch {
	case errors.Is(err, fs.ErrNotExist):
		hint = "name an existing train.toml, or a script with torchrun's flags"
		if meant := nearestFile(path); meant != "" {
			hint = "did you mean " + meant + "?"
		}
	case errors.Is(err, fs.ErrPermission):
		hint = "make the file readable for this user"
	}
	return errext.WithHint(fmt.Errorf("read %s: %w", path, err), hint)
}

// A reader turns a train.toml's tables into a job.
type reader struct {
	root     map[string]any
	dir      string // the file's folder
	job      *Job
	problems []Problem
	hook     frameworkHook // nil: only torchrun is known
	env      commandline.Environ
	sections map[string][]string // sections that the file may have
	// line has torchrun's flags in job.command, nil without them.
	line *commandline.TorchrunCommand
}

// sections are the tables of a train.toml, with the keys that each may have.
var sections = sectionsOf(Sections, false)

// read reads all tables. The order matters: the command's flags must be known before [launch] is read.
func (r *reader) read() {
	r.unknownKeys()
	r.readJob()
	r.readLaunch()
	r.readRecovery()
	r.readKeys("limits")
	r.readKeys("slurm")
	r.readNotify()
	if knobs, set := r.root["knobs"]; set {
		if r.job.Knobs, set = knobs.(map[string]any); !set {
			r.problem("knobs")
		}
	}
	r.readResume()
	r.readProgress()
	r.readMetrics(false)
}

// table returns a table, empty if the file has none.
func (r *reader) table(name string) *fileTable {
	values, _ := r.root[name].(map[string]any)
	return &fileTable{edit.NewTable(values, &r.problems, name)}
}

// problem reports a section that is no table.
func (r *reader) problem(section string) {
	r.problems = append(r.problems, Problem{
		Key: []string{section}, AtValue: true,
		Message: fmt.Sprintf("want a table, found %s; write [%s] on a separate line", edit.Describe(r.root[section]), section),
	})
}

// unknownKeys reports unknown keys, and sections that are no tables.
func (r *reader) unknownKeys() {
	names := slices.Sorted(maps.Keys(r.sections))
	for _, section := range slices.Sorted(maps.Keys(r.root)) {
		keys, known := r.sections[section]
		values, isTable := r.root[section].(map[string]any)
		switch {
		case !known && isTable:
			r.unknown([]string{section}, names, "unknown table")
		case !known:
			r.unknown([]string{section}, names, "unknown key")
		case !isTable:
			if keys != nil {
				r.problem(section)
			}
		case keys != nil:
			for _, key := range slices.Sorted(maps.Keys(values)) {
				if !slices.Contains(keys, key) {
					r.unknown([]string{section, key}, keys, "unknown key")
				}
			}
		}
	}
}

// unknown reports an unknown key with a guess: a key of the same table, the table that has this key, or the
// command, for a flag of torchrun. Without a guess it lists the known keys. A removed key is named as such.
func (r *reader) unknown(path, near []string, message string) {
	name := path[len(path)-1]
	if why, removed := removedKeys[strings.Join(path, ".")]; removed {
		r.problems = append(r.problems, Problem{Key: path, Message: why})
		return
	}
	p := Problem{Key: path, Message: message, Suggest: Nearest(name, near)}
	if p.Suggest == "" {
		p.Message += "; " + r.elsewhere(path, near)
	}
	r.problems = append(r.problems, p)
}

// elsewhere returns where an unknown key of a table belongs.
func (r *reader) elsewhere(path, near []string) string {
	name := path[len(path)-1]
	key := strings.ReplaceAll(name, "-", "_")
	for _, section := range slices.Sorted(maps.Keys(r.sections)) {
		if slices.Contains(r.sections[section], key) {
			return fmt.Sprintf("%s belongs in [%s]", key, section)
		}
	}
	if k := Said(path[0], key); len(path) == 2 && k != nil && k.OneJob {
		return "it belongs in a train.toml: it is about one job"
	}
	flag := strings.ReplaceAll(name, "_", "-")
	if r.sections["job"] != nil && commandline.IsTorchrunOption(flag) {
		return fmt.Sprintf("a flag of torchrun's goes into job.command = \"torchrun --%s …\"", flag)
	}
	if len(path) == 1 {
		return "the tables are " + strings.Join(near, ", ")
	}
	return fmt.Sprintf("[%s] has %s", path[0], strings.Join(near, ", "))
}

// The problems of a train.toml, and their places.
type (
	Problem = edit.Problem
	Fault   = edit.FileFault
	Error   = edit.FileError
)

// A Check validates a part of a train.toml that package job does not know, such as [knobs]. It gets the whole
// file as generic values, as in Job.Knobs. The file may have other problems.
type Check func(table map[string]any) []Problem
