package job

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

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
	root, fault := edit.DecodeTOML(text)
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
		Message: fmt.Sprintf("want a table, found %s; write [%s] on a separate line", edit.Describe(r.root[section]),
			section),
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

// A fileTable reads one table of a train.toml. It adds paths, durations and sizes to edit.ValueTable.
type fileTable struct{ *edit.ValueTable }

// file reads a path. Nothing is expanded in it.
func (t *fileTable) file(key, fallback string) string {
	s := t.Text(key, fallback)
	switch {
	case strings.HasPrefix(s, "~"):
		t.Bad(key, "only a shell expands ~; write the path out, or ./%s for a file of that name", s)
	case strings.Contains(s, "\x00"):
		t.Bad(key, "holds a NUL character")
		return fallback
	}
	return s
}

// duration reads a duration such as "30s" or "2h30m", of at least least.
func (t *fileTable) duration(key string, fallback, least time.Duration) time.Duration {
	v, set := t.Get(key)
	if !set {
		return fallback
	}
	s, ok := v.(string)
	if !ok {
		if n, isNumber := edit.Number(v); isNumber {
			t.Bad(key, "%v", bareDuration(n))
		} else {
			t.Bad(key, "want a duration such as \"30s\", found %s", edit.Describe(v))
		}
		return fallback
	}
	d, err := parseDuration(s)
	switch {
	case err != nil:
		t.Bad(key, "%v", err)
	case d < least:
		t.Bad(key, "%q is less than %v", s, least)
	default:
		return d
	}
	return fallback
}

// size reads "24GiB", in bytes.
func (t *fileTable) size(key string) int64 {
	v, set := t.Get(key)
	if !set {
		return 0
	}
	s, ok := v.(string)
	if n, isNumber := edit.Number(v); isNumber {
		s, ok = n, true
	}
	if !ok {
		t.Bad(key, "want a size such as \"24GiB\", found %s", edit.Describe(v))
		return 0
	}
	bytes, err := ParseSize(s)
	if err != nil {
		t.Bad(key, "%v", err)
	}
	return bytes
}

// sizeUnits maps a unit, in lower case, to its bytes.
var sizeUnits = map[string]float64{
	"b":  1,
	"kb": 1e3, "mb": 1e6, "gb": 1e9, "tb": 1e12,
	"kib": 1 << 10, "mib": 1 << 20, "gib": 1 << 30, "tib": 1 << 40,
}

// ParseSize reads an amount of memory, such as "24GiB" or "512 MB": a decimal number and one of B, KB, MB,
// GB, TB (powers of 1000), KiB, MiB, GiB and TiB (powers of 1024). Fractions of a byte are dropped.
func ParseSize(text string) (bytes int64, err error) {
	text = strings.TrimSpace(text)
	digits := strings.TrimRight(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ")
	unit := strings.ToLower(text[len(digits):])
	digits = strings.TrimSpace(digits)
	if digits == "" || strings.Trim(digits, "0123456789.") != "" {
		return 0, fmt.Errorf("%q is not a size; write one like \"24GiB\"", text)
	}
	number, err := strconv.ParseFloat(digits, 64)
	if err != nil {
		return 0, fmt.Errorf("%q is not a size; write one like \"24GiB\"", text)
	}
	if unit == "" {
		return 0, fmt.Errorf("%q has no unit; write \"%sGiB\", or whichever is meant", text, digits)
	}
	scale, known := sizeUnits[unit]
	if !known {
		return 0, fmt.Errorf("%q has an unknown unit; write \"%s\"", text, digits+likelyUnit(unit))
	}
	size := number * scale
	if size < 1 || size >= math.MaxInt64 {
		return 0, fmt.Errorf("%q is out of range", text)
	}
	return int64(size), nil
}

// likelyUnit returns the unit that was probably meant by an invalid one: "G" is 1024³ in some tools and 1000³
// in others.
func likelyUnit(unit string) string {
	if i := strings.IndexByte("kmgt", unit[0]); i >= 0 {
		return "KMGT"[i:i+1] + "iB"
	}
	return "GiB"
}

// spelledUnits maps long names of units of time to those of time.ParseDuration.
var spelledUnits = map[string]string{
	"sec": "s", "secs": "s", "second": "s", "seconds": "s",
	"min": "m", "mins": "m", "minute": "m", "minutes": "m",
	"hr": "h", "hrs": "h", "hour": "h", "hours": "h",
}

// parseDuration reads "30s", "30m" or "2h30m".
func parseDuration(text string) (time.Duration, error) {
	d, err := time.ParseDuration(text)
	switch {
	case err == nil && d < 0:
		return 0, fmt.Errorf("%q is negative", text)
	case err == nil:
		return d, nil
	}
	digits := strings.TrimRight(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ ")
	unit := strings.ToLower(strings.TrimSpace(text[len(digits):]))
	number, notNumber := strconv.ParseFloat(digits, 64)
	if notNumber != nil || number < 0 {
		return 0, fmt.Errorf("%q is not a duration; write one like \"30s\", \"30m\" or \"2h30m\"", text)
	}
	if unit == "" {
		return 0, bareDuration(digits)
	}
	if unit == "d" || strings.HasPrefix(unit, "day") {
		return 0, fmt.Errorf("%q is not a duration; write \"%gh\"", text, number*24)
	}
	if short, known := spelledUnits[unit]; known {
		return 0, fmt.Errorf("%q is not a duration; write \"%s%s\"", text, digits, short)
	}
	if short := unit[:1]; strings.Contains("smh", short) && len(unit) == 1 {
		return 0, fmt.Errorf("%q is not a duration; write \"%s%s\"", text, strings.TrimSpace(digits), short)
	}
	return 0, fmt.Errorf("%q is not a duration; write one like \"30s\", \"30m\" or \"2h30m\"", text)
}

// bareDuration refuses a number without a unit.
func bareDuration(digits string) error {
	return errors.New(digits + " has no unit; write \"" + digits + "s\" for seconds, \"" + digits + "m\" for minutes")
}
