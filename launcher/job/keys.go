package job

import (
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/gpurun/gpurun/recipes/edit"
	"github.com/gpurun/gpurun/strategy"
)

// A Section describes one table of a train.toml.
type Section struct {
	Name  string
	About string // one line
	// Config: the configuration of the user or the site may have it too.
	Config bool
	// OneOf are keys of which the table needs exactly one; nil if it needs none.
	OneOf []string
	// Keys are in the order in which they are shown; nil if the recipes check the table.
	Keys []FileKey
}

// A FileKey describes one key of a table: the values that the reader accepts, and the text for help, the
// schema for editors and the manual.
type FileKey struct {
	Name string
	Form Form
	// Words are the allowed texts, the allowed elements of a list, or the words allowed in place of a number
	// or a size. Nil means any text or element, and no word in place of a number.
	Words []string
	// Least and Most bound a number. Least also bounds a duration, in nanoseconds, and a size, in bytes.
	Least, Most int
	// Default is the value if the key is not set, spelt as in a train.toml; empty for none.
	Default string
	// Example is a value, if there is no default.
	Example string
	About   string // one line
	OneJob  bool   // it describes one job: no configuration may set it for all
	// at returns where to store the value or the default in a job, or a function that stores it. It is nil if
	// the table's reader checks more than form, words and bounds.
	at func(*Job) any
}

// A Form is the spelling of a value.
type Form string

// The forms.
const (
	TextForm     Form = "text"
	PathForm     Form = "path"
	DurationForm Form = "duration" // "30s", "2h30m"
	SizeForm     Form = "size"     // "24GiB"
	PatternForm  Form = "pattern"  // a regular expression
	NumberForm   Form = "number"   // whole
	TruthForm    Form = "true or false"
	ListForm     Form = "list"  // of texts
	TableForm    Form = "table" // of texts, by name
)

// The allowed words of some keys.
var (
	launchers = []string{"gpurun", "self"}
	counts    = []string{"auto", "gpu", "cpu"}
	stalls    = []string{"off", "auto"}
	snapshots = []string{"oom", "always", "off"}
	onNotices = []string{"auto", "stop", "go-on"}
	ttys      = []string{"auto", "always", "never"}
)

// Sections are the tables of a train.toml, the only list of its keys.
var Sections = []Section{
	{Name: "job", About: "the command, and where it runs: one of script, module, program and command",
		OneOf: []string{"script", "module", "program", "command"}, Keys: jobKeys},
	{Name: "launch", About: "how the ranks are started", Config: true, Keys: launchKeys},
	{Name: "recovery", About: "what gpurun may do to get the job trained", Config: true, Keys: recoveryKeys},
	{Name: "limits", About: "ceilings that gpurun puts on each rank", Config: true, Keys: []FileKey{
		{Name: "device_memory", Form: SizeForm, Example: `"24GiB"`,
			About: "the most memory that each rank may use: of its GPU, or of the host where the job trains on the CPU",
			at:    func(j *Job) any { return &j.DeviceMemory }},
	}},
	{Name: "knobs", About: "where a script of your own keeps its settings (recipes/README.md); a recipe's entries are replaced"},
	{Name: "resume", About: "how the job continues from a checkpoint", Keys: []FileKey{
		{Name: "latest", Form: PathForm, Example: `"out/ckpt-*"`,
			About: "the checkpoints, as a glob: the newest complete match is resumed from"},
		{Name: "args", Form: ListForm, Example: `["--resume", "{latest}"]`,
			About: "are added to the command, {latest} replaced by the checkpoint"},
		{Name: "data", Form: TextForm, Example: `"kept"`,
			About: `"kept": the job continues with the next sample; any other text describes what becomes of the samples`},
	}},
	{Name: "progress", About: "how the job's output shows that it trains", Keys: []FileKey{
		{Name: "step", Form: PatternForm, Example: `'step (\d+)'`,
			About: "its first group is a step's number; groups with names are step, total and loss"},
	}},
	{Name: "notify", About: "where the events of a run are sent (docs/notifications.md)", Config: true,
		OneOf: notifyWhere, Keys: notifyKeys},
	{Name: "metrics", About: "what Prometheus reads (docs/metrics.md)", Config: true, Keys: []FileKey{
		{Name: "textfile", Form: PathForm, Default: `""`,
			About: "a file for node_exporter that ends in .prom; {job} and {run} in it are the names"},
		{Name: "listen", Form: TextForm, Default: `""`,
			About: "an address that Prometheus scrapes, such as 127.0.0.1:9400; with port 0 the system chooses one"},
	}},
}

// SiteSections are the tables that only the site's configuration may have.
var SiteSections = []Section{
	{Name: "fits", About: "what jobs needed, shared by the users of a site (docs/administration.md)", Config: true,
		Keys: []FileKey{
			{Name: "shared", Form: PathForm, Default: `""`,
				About: "a folder in which users share measurements of their jobs; empty: nothing is shared",
				at:    func(j *Job) any { return &j.Fits.Shared }},
			{Name: "trust", Form: TextForm, Words: []string{TrustOwn, TrustGroup}, Default: `"own"`,
				About: "own: plans of other users are proposals; group: jobs start with plans that fitted for a member of the folder's group", at: func(j *Job) any { return &j.Fits.Trust }},
		}},
}

// allSections are the tables of all files.
func allSections() []Section { return slices.Concat(Sections, SiteSections) }

var notifyKeys = []FileKey{
	{Name: "url", Form: TextForm, Example: `"https://example.com/hook"`,
		About: "where events are posted; if it is a secret, use one of the next two"},
	{Name: "url_env", Form: TextForm, Example: `"GPURUN_NOTIFY_URL"`, About: "or a variable with the URL"},
	{Name: "url_file", Form: PathForm, Example: `"/etc/gpurun/url"`, About: "or a file with the URL"},
	{Name: "command", Form: ListForm, Example: `["./tell.sh"]`,
		About: "or a program and its arguments, which gets each event on its stdin"},
	{Name: "on", Form: ListForm, Words: notifyEvents, Default: `["rescued", "exhausted", "failed", "trained", "stalled"]`,
		About: "the events that are sent"},
	{Name: "timeout", Form: DurationForm, Default: `"10s"`, About: "of each try, from 1s to 1m"},
	{Name: "secret_env", Form: TextForm, Example: `"GPURUN_NOTIFY_SECRET"`,
		About: "a variable with the secret that signs posts"},
	{Name: "secret_file", Form: PathForm, Example: `"/etc/gpurun/secret"`, About: "or a file with it"},
}

// removedKeys are the keys of earlier versions, and what to use in place of each.
var removedKeys = map[string]string{
	"notify.style": "was removed, since each event is sent as gpurun's own JSON; for Slack, Discord or Teams set command " +
		"to a program that posts to the chat (docs/notifications.md)",
}

var jobKeys = []FileKey{
	{Name: "name", Form: TextForm, Example: `"gpt-small"`,
		About: "names the folder of the job's runs; by default the file's name"},
	{Name: "script", Form: PathForm, Example: `"train.py"`, About: "a Python file"},
	{Name: "module", Form: TextForm, Example: `"pkg.train"`, About: "or a Python module, as with python -m"},
	{Name: "program", Form: ListForm, Example: `["./run.sh"]`, About: "or a program and its arguments"},
	{Name: "command", Form: TextForm, Example: `"torchrun --nproc-per-node 8 train.py"`,
		About: "or a command line as you type it today"},
	{Name: "args", Form: ListForm, Example: `["--batch-size", "64"]`, About: "the arguments of script, module or program"},
	{Name: "env", Form: TableForm, Example: `{ HF_HOME = "/data/hf" }`,
		About: "variables for the ranks, on top of gpurun's own"},
	{Name: "workdir", Form: PathForm, Default: `"."`, About: "where the ranks run; relative paths count from this file"},
	{Name: "python", Form: PathForm, Default: `""`,
		About: `"": PYTHON_EXEC, the active venv or conda, torchrun's own, python3`},
	{Name: "recipe", Form: TextForm, Default: `"auto"`, About: `a name, a path to a recipe file, or "none"`},
}

var launchKeys = []FileKey{
	{Name: "nproc_per_node", OneJob: true, Form: NumberForm, Words: counts, Least: 1, Most: mostRanks, Default: `"auto"`,
		About: "ranks; auto: one for each usable GPU where the script is distributed, else one process",
		at:    func(j *Job) any { return &j.Launch.NprocPerNode }},
	{Name: "nnodes", OneJob: true, Form: NumberForm, Words: []string{"auto"}, Least: 1, Most: mostNodes,
		Default: `"auto"`, About: "how many nodes the launch has to have; `\"auto\"`: as many as it is started on"},
	{
		Name: "master_port", OneJob: true, Form: NumberForm, Most: 65535, Default: "0",
		About: "0: a free one for each attempt", at: func(j *Job) any { return &j.Launch.MasterPort },
	},
	{Name: "ranks", OneJob: true, Form: TextForm, Words: launchers, Default: `"gpurun"`,
		About: "who starts the ranks; self: the command starts its own",
		at:    func(j *Job) any { return func(v any) { j.Launch.Self = v == "self" } }},
	{
		Name: "data_parallel", OneJob: true, Form: NumberForm, Most: many, Default: "0",
		About: "0: all ranks; set it where tensor, pipeline or context parallelism takes part of them",
		at:    func(j *Job) any { return &j.Launch.DataParallel },
	},
	{Name: "hang_timeout", Form: DurationForm, Least: int(time.Second), Default: `"30s"`,
		About: "silence after an out-of-memory traceback that means the rank hangs; at least 1s",
		at:    func(j *Job) any { return &j.Launch.HangTimeout }},
	// long enough for a usual step
	{Name: "stall_timeout", Form: DurationForm, Words: stalls, Least: int(time.Second), Default: `"off"`,
		About: "if no rank makes a step for so long, the job hangs; auto: ten times the longest step, at least 10m",
		at:    func(j *Job) any { return func(v any) { j.Launch.Stalls = stallRule(v) } }},
	{Name: "preflight", Form: TruthForm, Words: []string{PreflightAuto}, Default: `"auto"`,
		About: "auto: query the driver for unhealthy GPUs during the start; true: also test NCCL between them before, for a minute at most",
		at:    func(j *Job) any { return &j.Launch.Preflight }},
	{
		Name: "probe", Form: TruthForm, Default: "true",
		About: "the small Python hook: it reports the state of the process, and changes settings there",
		at:    func(j *Job) any { return &j.Launch.Probe },
	},
	{Name: "hooks", Form: TruthForm, Default: "true",
		About: "false: nothing is loaded into the job, as with mode = \"off\"",
		at:    func(j *Job) any { return &j.Launch.Hooks }},
	{
		Name: "snapshot", Form: TextForm, Words: snapshots, Default: `"oom"`,
		About: "when the GPU allocator's snapshot is written: what filled its memory, by line of code",
		at:    func(j *Job) any { return &j.Launch.Snapshot },
	},
	{Name: "on_notice", Form: TextForm, Words: onNotices, Default: `"auto"`,
		About: "on SIGUSR1; stop: at the next checkpoint; go-on: start no further attempt; auto: stop under a scheduler with a time limit", at: func(j *Job) any { return &j.Launch.OnNotice }},
	{
		Name: "notice_grace", Form: DurationForm, Default: `"60s"`,
		About: "how long to train after a notice where the time limit is not known",
		at:    func(j *Job) any { return &j.Launch.NoticeGrace },
	},
	{Name: "tty", Form: TextForm, Words: ttys, Default: `"auto"`, About: "a pseudo-terminal for a single rank",
		at: func(j *Job) any { return &j.Launch.TTY }},
	{Name: "log_limit", Form: SizeForm, Words: []string{"off"}, Least: leastLogLimit, Default: `"256MiB"`,
		About: "of each log of a rank: the beginning and the end are kept; off: no limit",
		at:    func(j *Job) any { return func(v any) { j.Launch.LogLimit, _ = v.(int64) } }}, // "off" is 0
}

var recoveryKeys = []FileKey{
	{
		Name: "mode", Form: TextForm, Words: modes, Default: `"predict"`,
		About: "ladder: one remedy at a time; off: run, name the cause, change nothing",
		at:    func(j *Job) any { return &j.Policy.Mode },
	},
	{Name: "prefer", Form: TextForm, Words: prefers, Default: `"exact"`,
		About: "exact: plans that train the same come before those that are equal on average; speed: the fastest of both; tree: the order of remedies", at: func(j *Job) any { return &j.Policy.Prefer }},
	{
		Name: "in_place", Form: TruthForm, Default: "true",
		About: "a step that runs out of memory is done again inside the process, with less memory, where that is exact",
		at:    func(j *Job) any { return &j.Policy.InPlace },
	},
	{
		Name: "tune", Form: TruthForm, Default: "true",
		About: "after such a step, the next ones try other exact ways, and keep the fastest that fits",
		at:    func(j *Job) any { return &j.Policy.Tune },
	},
	{
		Name: "questions", Form: DurationForm, Default: `"10s"`,
		About: "how long a process that ran out of memory may be asked about its model before its error goes up; 0: not at all", at: func(j *Job) any { return &j.Policy.Questions },
	},
	{
		Name: "climb", Form: TruthForm, Default: "true",
		About: "one relaunch, at a checkpoint, to a faster plan where memory is left; false: only proposed",
		at:    func(j *Job) any { return &j.Policy.Speedup },
	},
	{Name: "max_attempts", Form: NumberForm, Least: 1, Most: many, Default: "20",
		About: "the most attempts; one that a signal or the scheduler ended does not count",
		at:    func(j *Job) any { return &j.Policy.MaxAttempts }},
	{
		Name: "numerics", Form: TextForm, Words: numerics, Default: `"mixed-precision"`,
		About: "preserve: same dtypes and optimizer; any: also the remedies optimizer and sequence",
		at:    func(j *Job) any { return &j.Policy.Numerics },
	},
	{Name: "never", Form: ListForm, Words: barrable(), Default: "[]", Example: `["nvme"]`,
		About: "remedies or knobs to leave alone", at: func(j *Job) any { return &j.Policy.Never }},
	{
		Name: "nvme_path", Form: PathForm, Default: `""`,
		About: "a folder on a local disk, for the remedy nvme", at: func(j *Job) any { return &j.Policy.NVMePath },
	},
	{Name: "exit_codes", Form: TableForm, Words: strategy.ExitAnswers,
		Example: `{ "75" = "requeue", "3" = "no-retry", "4" = "retry" }`,
		About:   "what the job's own exit codes ask for; requeue: gpurun ends with 75; no-retry: with 1; retry: the same plan again, up to transient_retries"},
	{Name: "transient_retries", Form: NumberForm, Most: many, Default: "3",
		About: "restarts for failures that pass, such as a lost network",
		at:    func(j *Job) any { return &j.Policy.TransientRetries }},
	{
		Name: "restart_from_zero", Form: DurationForm, Default: `"30m"`,
		About: "work that may be repeated where there is no checkpoint",
		at:    func(j *Job) any { return &j.Policy.RestartFromZero },
	},
}

// readKeys reads the keys of a table that have an at.
func (r *reader) readKeys(section string) *fileTable {
	t := r.table(section)
	for _, s := range allSections() {
		for _, k := range s.Keys {
			if s.Name == section && k.at != nil && t.Has(k.Name) {
				r.readKey(t, k)
			}
		}
	}
	return t
}

// readKey reads one key. It reports a value of another form, out of bounds, or not among the words, and does
// not store it.
func (r *reader) readKey(t *fileTable, k FileKey) {
	value, ok := r.value(t, k)
	if !ok {
		return
	}
	if set, special := k.at(r.job).(func(any)); special {
		set(value)
		return
	}
	switch at := reflect.ValueOf(k.at(r.job)).Elem(); at.Kind() {
	case reflect.String:
		at.SetString(fmt.Sprint(value))
	default:
		at.Set(reflect.ValueOf(value).Convert(at.Type()))
	}
}

// value returns a key's value: one of its words as text, or a value of its form. It reports false if the key
// is not set, or if the value has a problem.
func (r *reader) value(t *fileTable, k FileKey) (value any, ok bool) {
	value, set := t.Get(k.Name)
	word, isText := value.(string)
	_, noNumber := strconv.Atoi(word)
	before := len(r.problems)
	switch {
	case !set:
	case isText && k.Form != TextForm && k.Form != ListForm && slices.Contains(k.Words, word):
	case isText && noNumber != nil && k.Words != nil && (k.Form == NumberForm || k.Form == TruthForm):
		form := map[Form]string{NumberForm: "a number", TruthForm: "true, false"}[k.Form]
		separator := ", "
		if len(k.Words) == 1 {
			separator = " or "
		}
		t.Report(Problem{Key: t.Path(k.Name), AtValue: true, Suggest: Nearest(word, k.Words),
			Message: fmt.Sprintf("unknown value %q, want %s%s%s", word, form, separator, edit.Either(k.Words))})
	default:
		value = r.ofForm(t, k)
	}
	return value, set && len(r.problems) == before
}

// ofForm reads the value of a key by its form.
func (r *reader) ofForm(t *fileTable, k FileKey) any {
	switch k.Form {
	case TruthForm:
		return t.Truth(k.Name, false)
	case NumberForm:
		return t.Whole(k.Name, 0, k.Least, k.Most)
	case SizeForm:
		bytes := t.size(k.Name)
		if bytes > 0 && bytes < int64(k.Least) {
			t.Bad(k.Name, "less than %s; %s is not a limit", strategy.GiB(int64(k.Least)), edit.Either(k.Words))
		}
		return bytes
	case DurationForm:
		return t.duration(k.Name, 0, time.Duration(k.Least))
	case ListForm:
		return t.Words(k.Name)
	case PathForm:
		return r.path(t.file(k.Name, ""))
	}
	return t.Choice(k.Name, "", k.Words...)
}

// defaultsOf returns the defaults of the keys that have an at, as a train.toml.
var defaultsOf = sync.OnceValue(func() map[string]any {
	var b strings.Builder
	for _, s := range allSections() {
		fmt.Fprintf(&b, "[%s]\n", s.Name)
		for _, k := range s.Keys {
			if k.at != nil && k.Default != "" {
				fmt.Fprintf(&b, "%s = %s\n", k.Name, k.Default)
			}
		}
	}
	root, fault := edit.DecodeTOML([]byte(b.String()))
	if fault != nil {
		panic("job: the defaults in the table of keys: " + fault.Message)
	}
	return root
})

// sectionsOf returns tables by name, with the keys that each may have. A nil list means that other code checks
// the table. In a configuration, they have the keys that are not about one job.
func sectionsOf(all []Section, config bool) map[string][]string {
	named := map[string][]string{}
	for _, s := range all {
		if config && !s.Config {
			continue
		}
		named[s.Name] = nil
		for _, k := range s.Keys {
			if !config || !k.OneJob {
				named[s.Name] = append(named[s.Name], k.Name)
			}
		}
	}
	return named
}

// Said returns the description of a key by its table and name; nil for none.
func Said(section, name string) *FileKey {
	for _, s := range allSections() {
		for i := range s.Keys {
			if s.Name == section && s.Keys[i].Name == name {
				return &s.Keys[i]
			}
		}
	}
	return nil
}

// KnobNames returns the knobs that a [knobs] table may have.
func KnobNames() []string {
	var names []string
	for _, k := range strategy.Knobs {
		if k != strategy.Allocator { // its values are the same for every job
			names = append(names, string(k))
		}
	}
	return names
}
