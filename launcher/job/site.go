package job

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/gpurun/gpurun/launcher/commandline"
	"github.com/gpurun/gpurun/launcher/errext"
	"github.com/gpurun/gpurun/recipes/edit"
	"github.com/gpurun/gpurun/strategy"
)

// SiteConfig is the path of the site's configuration. It is set when gpurun is built, never by a user:
// -ldflags "-X github.com/gpurun/gpurun/launcher/job.SiteConfig=/opt/etc/gpurun/config.toml".
var SiteConfig = "/etc/gpurun/config.toml"

// A configFile has defaults for all jobs: those of a site, or of a user.
type configFile struct {
	path string
	site bool
}

// configFiles lists the configurations, the weakest first: the site's, those in XDG_CONFIG_DIRS, the user's.
func configFiles(env commandline.Environ) []configFile {
	files := []configFile{{SiteConfig, true}}
	dirs := filepath.SplitList(cmp.Or(env["XDG_CONFIG_DIRS"], "/etc/xdg"))
	for _, dir := range slices.Backward(dirs) {
		if filepath.IsAbs(dir) { // its specification ignores a relative path
			files = append(files, configFile{filepath.Join(dir, "gpurun", "config.toml"), true})
		}
	}
	var once []configFile
	for _, f := range append(files, configFile{ConfigFile(env), false}) {
		if f.path != "" && !slices.ContainsFunc(once, func(o configFile) bool { return o.path == f.path }) {
			once = append(once, f)
		}
	}
	return once
}

// ConfigFile returns the path of the user's defaults for all jobs, below XDG_CONFIG_HOME or ~/.config; empty
// if the environment names no home.
func ConfigFile(env commandline.Environ) string {
	folder := env["XDG_CONFIG_HOME"]
	if !filepath.IsAbs(folder) { // its specification ignores a relative path
		if !filepath.IsAbs(env["HOME"]) {
			return ""
		}
		folder = filepath.Join(env["HOME"], ".config")
	}
	return filepath.Join(folder, "gpurun", "config.toml")
}

// Configured returns a job with the values of all configurations, and no command. The error is an *Error with
// all problems of one file, or has a hint.
func Configured(env commandline.Environ) (*Job, error) {
	j := defaults()
	for _, f := range configFiles(env) {
		if err := j.configure(f); err != nil {
			return nil, err
		}
	}
	return j, nil
}

// configKind names the kind of file in errors about a configuration.
const configKind = "configuration that gpurun can use"

// configure adds the values of a configuration, and its locks.
func (j *Job) configure(f configFile) error {
	text, err := ReadFile(f.path, largestJob)
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, unix.ENOTDIR):
		return nil
	case errors.Is(err, fs.ErrPermission): // the home of another user
		j.Warnings = append(j.Warnings, fmt.Sprintf("%s cannot be read, and counts for nothing", f.path))
		return nil
	case err != nil:
		return errext.WithHint(fmt.Errorf("read the configuration: %w", err),
			"make it a file that you can read, or remove it")
	}
	safe, unsafe := true, ""
	if f.site {
		if safe, unsafe = rootOnly(f.path); !safe && unsafe == everybody {
			j.Warnings = append(j.Warnings, fmt.Sprintf("everybody can change %s or its folder: it counts for nothing", f.path))
			return nil
		}
	}
	root, fault := edit.DecodeTOML(text)
	if fault != nil {
		return &Error{File: f.path, Kind: configKind, Faults: hushed(text, []Fault{*fault})}
	}
	r := reader{root: root, dir: filepath.Dir(f.path), job: j, sections: sectionsOf(Sections, true)}
	var locked []string
	if f.site {
		r.sections = sectionsOf(allSections(), true)
		locked = r.readLocked()
	}
	r.unknownKeys()
	for _, name := range []string{"launch", "limits", "fits", "slurm"} {
		r.readKeys(name)
	}
	r.readRecovery()
	r.readNotify()
	r.readMetrics(true)
	if len(r.problems) > 0 {
		return &Error{File: f.path, Kind: configKind, Faults: hushed(text, edit.Faults(text, r.problems))}
	}
	loose := j.take(layer{path: f.path, text: text, root: root, all: true})
	if f.site && safe { // the stricter value of two files of the site counts
		loose = slices.DeleteFunc(loose, func(l siteLock) bool { return !l.rule.exact })
	}
	j.refuse(f.path, "configuration that this site allows", text, loose)
	if !safe && len(locked) > 0 {
		j.Warnings = append(j.Warnings, fmt.Sprintf("%s: locked counts for nothing: %s", f.path, unsafe))
		return nil
	}
	j.lock(f.path, text, locked)
	return nil
}

// everybody is the reason of rootOnly for a file that any user can change.
const everybody = "everybody can change it"

// rootOnly reports whether only root can have written a file and can replace it, or why not.
func rootOnly(path string) (only bool, why string) {
	if real, err := filepath.EvalSymlinks(path); err == nil && real != path {
		if only, why := rootOnly(real); !only {
			return only, why
		}
	}
	for _, p := range []string{path, filepath.Dir(path)} {
		info, err := os.Stat(p)
		if err != nil {
			return false, err.Error()
		}
		owner, known := info.Sys().(*syscall.Stat_t)
		mode := info.Mode().Perm()
		switch {
		case mode&0o022 != 0 && readOnly(p): // a volume that Kubernetes makes of a ConfigMap
		case mode&0o002 != 0:
			return false, everybody
		case mode&0o020 != 0:
			return false, fmt.Sprintf("the group of %s can write to it (mode %#o)", p, mode)
		}
		if known && owner.Uid != 0 {
			return false, fmt.Sprintf("%s belongs to uid %d, not to root", p, owner.Uid)
		}
	}
	return true, ""
}

// readOnly reports whether the file system of a path is mounted read-only.
func readOnly(path string) bool {
	var fs unix.Statfs_t
	return unix.Statfs(path, &fs) == nil && fs.Flags&unix.ST_RDONLY != 0
}

// A lockRule describes a key that a site may lock.
type lockRule struct {
	key     string               // as in strategy.Limit
	tighter func(by *Job) string // the values that are allowed if it is locked at that of a job
	exact   bool                 // the value must stay as it is
	// take replaces j's value by that of by, where that is stricter.
	take func(j, by *Job)
}

// lockRules are all keys that a site may lock.
var lockRules = sync.OnceValue(func() []lockRule {
	var rules []lockRule
	for _, l := range strategy.Limits {
		rules = append(rules, lockRule{key: l.Key, tighter: func(by *Job) string { return l.Tighter(by.Policy) },
			take: func(j, by *Job) { l.Tighten(&j.Policy, by.Policy) }})
	}
	checks := []string{PreflightOff, PreflightAuto, PreflightOn}
	thorough := func(by *Job) string {
		if by.Launch.Preflight == PreflightAuto {
			return `"auto" or true`
		}
		return "true"
	}
	rules = append(rules, lockRule{key: "launch.preflight", tighter: thorough, take: func(j, by *Job) {
		if slices.Index(checks, by.Launch.Preflight) > slices.Index(checks, j.Launch.Preflight) {
			j.Launch.Preflight = by.Launch.Preflight
		}
	}})
	for _, key := range notifyWhere {
		rules = append(rules, lockRule{key: "notify." + key, tighter: func(*Job) string { return "this destination" },
			exact: true, take: keepTarget})
	}
	return rules
})

// keepTarget keeps the destination of the notifications, and the events that are sent to it.
func keepTarget(j, by *Job) {
	on := j.Notify.On
	for _, event := range by.Notify.On {
		if !slices.Contains(on, event) {
			on = append(slices.Clone(on), event)
		}
	}
	j.Notify, j.notifyFrom = by.Notify, by.notifyFrom
	j.Notify.On = on
}

// siteSettings has what configurations have set, and what they do not allow.
type siteSettings struct {
	locks   []siteLock
	set     map[string]strategy.Setting // by key, from the strongest source
	refused []error
}

// A siteLock is one locked key of a site.
type siteLock struct {
	rule lockRule
	by   *Job   // has the locked value
	at   string // "/etc/gpurun/config.toml:3"
	// events: the destination is allowed, and only the events that are sent to it are too few.
	events bool
}

// allowed returns the value that a site lets a job have for a key of the policy in place of a looser one: a smaller
// number of attempts than wanted, if that is more than the job has. refused is why there is none.
func (j *Job) allowed(key, value string) (allowed, refused string) {
	wanted, own := *j, Own{}
	switch key {
	case strategy.SettingMaxAttempts:
		own.MaxAttempts = value
	case strategy.SettingNumerics:
		own.Numerics = value
	case strategy.SettingNever:
		own.Never, wanted.Policy.Never = value, nil
	}
	if err := wanted.takePolicy(own); err != nil {
		return value, ""
	}
	for _, l := range wanted.hold() {
		if l.rule.key != key {
			continue
		}
		if n := wanted.Policy.MaxAttempts; key == strategy.SettingMaxAttempts && n > j.Policy.MaxAttempts {
			return strconv.Itoa(n), ""
		}
		return "", fmt.Sprintf("%s is %s", key, l.locked())
	}
	return value, ""
}

// message says what is locked, and what may be set.
func (l siteLock) message() string {
	if l.events {
		return fmt.Sprintf("events can only be added to `on`: %s (%s is locked by %s)", strings.Join(l.by.Notify.On, ", "),
			l.rule.key, l.at)
	}
	return l.locked() + "; only " + l.rule.tighter(l.by) + " is allowed"
}

// set is the key whose value is too loose.
func (l siteLock) set() string {
	if l.events {
		return "notify.on"
	}
	return l.rule.key
}

// locked says at which value a key is locked, and where.
func (l siteLock) locked() string {
	value := ""
	if set := l.value(); set != "" {
		value = " at " + set
	}
	return "locked" + value + " by " + l.at
}

// value is the locked value as in a file; empty for a secret.
func (l siteLock) value() string {
	section, key, _ := strings.Cut(l.rule.key, ".")
	if section == "notify" {
		return ""
	}
	return cmp.Or(l.by.site.set[l.rule.key].Value, Said(section, key).Default)
}

// readLocked reads the keys that a site locks.
func (r *reader) readLocked() (keys []string) {
	value, set := r.root["locked"]
	if !set {
		return nil
	}
	delete(r.root, "locked")
	var names []string
	for _, rule := range lockRules() {
		names = append(names, rule.key)
	}
	list, ok := value.([]any)
	if !ok {
		r.problems = append(r.problems, Problem{Key: []string{"locked"}, AtValue: true,
			Message: `want a list of keys, such as ["recovery.max_attempts"]`})
	}
	for i, e := range list {
		key, _ := e.(string)
		if !slices.Contains(names, key) {
			r.problems = append(r.problems, Problem{Key: []string{"locked", fmt.Sprint(i)}, AtValue: true,
				Suggest: Nearest(key, names),
				Message: fmt.Sprintf("%v is not a key that can be locked; these are %s", e, strings.Join(names, ", "))})
			continue
		}
		keys = append(keys, key)
	}
	return keys
}

// lock locks keys at their present values.
func (j *Job) lock(path string, text []byte, keys []string) {
	by := *j
	by.site.set = maps.Clone(j.site.set)
	for i, key := range keys {
		at := slices.IndexFunc(lockRules(), func(r lockRule) bool { return r.key == key })
		line := lineOf(text, "locked", fmt.Sprint(i))
		j.site.locks = append(j.site.locks, siteLock{rule: lockRules()[at], by: &by, at: fmt.Sprintf("%s:%d", path, line)})
	}
}

// lineOf returns the line of a key in a file.
func lineOf(text []byte, key ...string) int {
	return edit.Faults(text, []Problem{{Key: key}})[0].Line
}

// hold makes the values of the job as strict as the locks require. It returns the locks of those that were not.
func (j *Job) hold() (loose []siteLock) {
	for _, l := range j.site.locks {
		before := *j
		l.rule.take(j, l.by)
		if !reflect.DeepEqual(before.lockable(), j.lockable()) {
			before.Notify.On = j.Notify.On
			l.events = l.rule.exact && reflect.DeepEqual(before.lockable(), j.lockable())
			loose = append(loose, l)
		}
	}
	return loose
}

// lockable returns the values that locks may hold.
func (j *Job) lockable() []any { return []any{j.Policy, j.Launch.Preflight, j.Notify, j.notifyFrom} }

// A layer is one file with settings.
type layer struct {
	path string
	text []byte
	root map[string]any
	all  bool // also settings that no configuration has
}

// take holds the values of a file, which the job has, and notes where they come from.
func (j *Job) take(f layer) (loose []siteLock) {
	loose = j.hold()
	for _, s := range allSections() {
		table, _ := f.root[s.Name].(map[string]any)
		for _, k := range s.Keys {
			value, set := table[k.Name]
			if !set || !s.Config || k.OneJob {
				continue
			}
			setting := strategy.Setting{Key: s.Name + "." + k.Name, By: f.path, Line: lineOf(f.text, s.Name, k.Name)}
			if s.Name != "notify" {
				setting.Value = spelled(value)
			}
			j.note(setting, f.all, loose)
		}
	}
	return loose
}

// note records the source of a value, unless a lock has replaced it.
func (j *Job) note(s strategy.Setting, all bool, loose []siteLock) {
	_, known := j.site.set[s.Key]
	locked := slices.ContainsFunc(j.site.locks, func(l siteLock) bool { return l.rule.key == s.Key })
	replaced := func(l siteLock) bool {
		return l.set() == s.Key || l.rule.exact && !l.events && strings.HasPrefix(s.Key, "notify.")
	}
	if !all && !known && !locked || slices.ContainsFunc(loose, replaced) {
		return
	}
	if j.site.set == nil {
		j.site.set = map[string]strategy.Setting{}
	}
	j.site.set[s.Key] = s
}

// spelled returns a value as in a file.
func spelled(value any) string {
	text, err := json.Marshal(value)
	if err != nil {
		return ""
	}
	return string(text)
}

// refuse records the settings of a file that a site does not allow.
func (j *Job) refuse(file, kind string, text []byte, loose []siteLock) {
	var problems []Problem
	for _, l := range loose {
		problems = append(problems, Problem{Key: strings.Split(l.set(), "."), AtValue: true, Message: l.message()})
	}
	if problems != nil {
		j.site.refused = append(j.site.refused, &Error{File: file, Kind: kind,
			Faults: hushed(text, edit.Faults(text, problems))})
	}
}

// A policyFlag is a flag of the policy, with the key of a train.toml that has its meaning.
type policyFlag struct{ key, flag, value string }

// policyFlags are those with a value that are given.
func policyFlags(own Own) []policyFlag {
	return slices.DeleteFunc([]policyFlag{
		{"recovery.mode", "--mode", own.Mode}, {"recovery.numerics", "--numerics", own.Numerics},
		{"recovery.max_attempts", "--max-attempts", own.MaxAttempts},
		{"recovery.never", "--never", own.Never}, {"limits.device_memory", "--device-memory", own.DeviceMemory},
	}, func(f policyFlag) bool { return f.value == "" })
}

// holdFlags holds the values of gpurun's own flags.
func (j *Job) holdFlags(own Own) {
	loose := j.hold()
	for _, f := range policyFlags(own) {
		j.note(strategy.Setting{Key: f.key, Value: f.value, By: f.flag}, false, loose)
		for _, l := range loose {
			if l.rule.key == f.key {
				j.site.refused = append(j.site.refused,
					errext.Errorf("omit "+f.flag+"; gpurun help config shows what the site sets", "%s %s: %s is %s", f.flag, f.value,
						f.key, l.message()))
			}
		}
	}
	if own.NotInPlace {
		j.note(strategy.Setting{Key: "recovery.in_place", Value: "false", By: "--no-in-place"}, false, loose)
	}
}

// Refused returns the settings that the site does not allow, with the file and line that lock each; nil if it
// allows all.
func (j *Job) Refused() error {
	if len(j.site.refused) == 1 {
		return j.site.refused[0]
	}
	return errors.Join(j.site.refused...)
}

// Held returns the same for a run that continues, a line each: the site's value counts there.
func (j *Job) Held() (lines []string) {
	for _, err := range j.site.refused {
		var file *Error
		if !errors.As(err, &file) {
			lines = append(lines, err.Error())
			continue
		}
		for _, f := range file.Faults {
			lines = append(lines, fmt.Sprintf("%s:%d: %s: %s", file.File, f.Line, f.Key, f.Message))
		}
	}
	return lines
}

// Replaced names the settings whose value at the beginning of a run was looser than now, a line each: the stricter one
// counts.
func (j *Job) Replaced(began, now strategy.Policy) (lines []string) {
	for _, l := range strategy.Limits {
		counts, ours := began, began
		l.Tighten(&counts, now)
		l.Tighten(&ours, j.Policy)
		if reflect.DeepEqual(counts, began) {
			continue
		}
		setting := l.Key + " as in an earlier start"
		if reflect.DeepEqual(counts, ours) {
			setting = l.Key
			for _, s := range j.Settings() {
				if s.Key == l.Key {
					setting = s.String()
				}
			}
		}
		lines = append(lines, setting+": this is stricter than at the beginning of the run, and counts from now on")
	}
	return lines
}

// Settings returns what configurations have set or locked, sorted by key, each with the source that counts.
func (j *Job) Settings() []strategy.Setting {
	all := maps.Clone(j.site.set)
	for _, l := range j.site.locks {
		s, set := all[l.rule.key]
		switch {
		case !set && strings.HasPrefix(l.rule.key, "notify."):
			s = strategy.Setting{Key: l.rule.key, By: "default"}
		case !set:
			s = strategy.Setting{Key: l.rule.key, Value: l.value(), By: "default"}
		}
		s.LockedBy = l.at
		if all == nil {
			all = map[string]strategy.Setting{}
		}
		all[l.rule.key] = s
	}
	return slices.SortedStableFunc(maps.Values(all), func(a, b strategy.Setting) int { return cmp.Compare(a.Key, b.Key) })
}
