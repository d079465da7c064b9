package job

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/BurntSushi/toml"

	"github.com/gpurun/gpurun/launcher/commandline"
)

// largest is how big a train.toml may be, in bytes. A larger file is something
// else, named by mistake.
const largest = 256 << 10

// Load reads the train.toml at path. The error is an *Error with every problem
// of the file, those of checks included, or a *UsageError where the file cannot
// be read.
func Load(path string, checks ...Check) (*Job, error) {
	return LoadWith(path, nil, checks...)
}

// LoadWith is Load for a job.command that may start with a launcher which unwrap
// can take off.
func LoadWith(path string, unwrap Unwrap, checks ...Check) (*Job, error) {
	text, err := read(path)
	if err != nil {
		return nil, err
	}
	absolute, err := filepath.Abs(path)
	if err != nil {
		return nil, fmt.Errorf("find %s: %w", path, err)
	}
	j, wrong := parse(absolute, text, unwrap, checks)
	if len(wrong) > 0 {
		return nil, &Error{File: path, Faults: wrong}
	}
	return j, nil
}

// parse makes a job of the text of a file.
func parse(absolute string, text []byte, unwrap Unwrap, checks []Check) (*Job, []Fault) {
	root, fault := decode(text)
	if fault != nil {
		return nil, []Fault{*fault}
	}
	r := reader{root: root, dir: filepath.Dir(absolute), job: defaults(), unwrap: unwrap}
	r.job.Path = absolute
	r.read()
	for _, check := range checks {
		r.problems = append(r.problems, check(root)...)
	}
	if len(r.problems) > 0 {
		return nil, faults(text, r.problems)
	}
	r.job.Digest = digest(r.job, text)
	return r.job, nil
}

// read returns the text of the file, without a byte order mark.
func read(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, unreadable(path, err)
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, largest+1))
	if err != nil {
		return nil, unreadable(path, err)
	}
	if len(text) > largest {
		return nil, usage("gpurun takes a train.toml, or torchrun's flags and a script", "%s is too large for a train.toml", path)
	}
	return []byte(strings.TrimPrefix(string(text), "\uFEFF")), nil
}

// unreadable says why a file cannot be read.
func unreadable(path string, err error) *UsageError {
	u := &UsageError{Err: err}
	var inner *fs.PathError
	if errors.As(err, &inner) {
		err = inner.Err
	}
	u.Message = fmt.Sprintf("read %s: %v", path, err)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		u.Hint = "name an existing train.toml, or a script with torchrun's flags"
	case errors.Is(err, fs.ErrPermission):
		u.Hint = "make the file readable for this user"
	default:
		u.Hint = "name a train.toml, a regular file"
	}
	return u
}

// decode parses TOML into generic values, or says where it is none.
func decode(text []byte) (map[string]any, *Fault) {
	if at := tooDeep(text); at >= 0 {
		f := faultAt(text, lineStarts(text), at)
		f.Message = fmt.Sprintf("not a train.toml: nested more than %d deep", deepest)
		return nil, &f
	}
	root := map[string]any{}
	_, err := toml.Decode(string(text), &root)
	if err == nil {
		return plain(root).(map[string]any), nil
	}
	var parse toml.ParseError
	if !errors.As(err, &parse) {
		f := faultAt(text, lineStarts(text), 0)
		f.Message = "not TOML: " + err.Error()
		return nil, &f
	}
	f := faultAt(text, lineStarts(text), parse.Position.Start)
	f.Message = "not TOML: " + lowerFirst(parse.Message)
	return nil, &f
}

// lowerFirst makes a sentence of another package one of ours.
func lowerFirst(s string) string {
	s = strings.TrimSuffix(s, ".")
	if s == "" {
		return s
	}
	return strings.ToLower(s[:1]) + s[1:]
}

// plain gives every array the same type, that of an array of tables included.
func plain(v any) any {
	switch v := v.(type) {
	case map[string]any:
		for key, value := range v {
			v[key] = plain(value)
		}
	case []map[string]any:
		array := make([]any, len(v))
		for i, element := range v {
			array[i] = plain(element)
		}
		return array
	case []any:
		for i, element := range v {
			v[i] = plain(element)
		}
	}
	return v
}

// A reader turns a train.toml's tables into a job.
type reader struct {
	root     map[string]any
	dir      string // the file's
	job      *Job
	problems []Problem
	unwrap   Unwrap // nil: no launcher is known but torchrun
	// line is what torchrun's flags in job.command said, nil without them.
	line *commandline.Launch
}

// sections are the tables of a train.toml, with the keys that each may have. A
// nil list is a table that is checked elsewhere.
var sections = map[string][]string{
	"job":      {"name", "script", "module", "program", "command", "args", "env", "workdir", "python", "recipe"},
	"launch":   {"nproc_per_node", "nnodes", "master_port", "ranks", "data_parallel", "hang_timeout", "probe", "on_notice", "notice_grace", "tty"},
	"recovery": {"mode", "max_attempts", "numerics", "never", "nvme_path", "transient_retries", "restart_from_zero"},
	"limits":   {"device_memory"},
	"knobs":    nil,
	"resume":   {"latest", "args"},
	"progress": {"step"},
}

// read reads all tables. The order matters where one looks at another: the
// command's flags are known before [launch] is read.
func (r *reader) read() {
	r.unknownKeys()
	r.readJob()
	r.readLaunch()
	r.readRecovery()
	r.job.Limits.DeviceMemory = r.table("limits").size("device_memory")
	if knobs, set := r.root["knobs"]; set {
		if r.job.Knobs, set = knobs.(map[string]any); !set {
			r.problem("knobs")
		}
	}
	r.readResume()
	r.readProgress()
}

// table returns a table, empty where the file has none.
func (r *reader) table(name string) *table {
	values, _ := r.root[name].(map[string]any)
	return &table{name: name, values: values, problems: &r.problems}
}

// problem reports a section that is no table.
func (r *reader) problem(section string) {
	r.problems = append(r.problems, Problem{
		Key: []string{section}, AtValue: true,
		Message: fmt.Sprintf("want a table, found %s; write [%s] on a line of its own", describe(r.root[section]), section),
	})
}

// unknownKeys reports keys that mean nothing, and sections that are no tables.
func (r *reader) unknownKeys() {
	names := slices.Sorted(maps.Keys(sections))
	for _, section := range slices.Sorted(maps.Keys(r.root)) {
		keys, known := sections[section]
		values, isTable := r.root[section].(map[string]any)
		switch {
		case !known && isTable:
			r.unknown([]string{section}, names, "unknown table")
		case !known:
			r.unknown([]string{section}, names, "unknown key")
		case !isTable:
			if section != "knobs" {
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

// unknown reports one key, with a guess: a key of the same table, the table that
// has this key, or the command for a flag of torchrun's. Without one it lists
// what there is.
func (r *reader) unknown(path, near []string, message string) {
	name := path[len(path)-1]
	p := Problem{Key: path, Message: message, Suggest: Nearest(name, near)}
	if p.Suggest == "" {
		p.Message += "; " + elsewhere(path, near)
	}
	r.problems = append(r.problems, p)
}

// elsewhere says where a key that is unknown in its table belongs.
func elsewhere(path, near []string) string {
	name := path[len(path)-1]
	key := strings.ReplaceAll(name, "-", "_")
	for _, section := range slices.Sorted(maps.Keys(sections)) {
		if slices.Contains(sections[section], key) {
			return fmt.Sprintf("%s belongs in [%s]", key, section)
		}
	}
	flag := strings.ReplaceAll(name, "_", "-")
	if commandline.IsTorchrunOption(flag) {
		return fmt.Sprintf("a flag of torchrun's goes into job.command = \"torchrun --%s …\"", flag)
	}
	if len(path) == 1 {
		return "the tables are " + strings.Join(near, ", ")
	}
	return fmt.Sprintf("[%s] has %s", path[0], strings.Join(near, ", "))
}
