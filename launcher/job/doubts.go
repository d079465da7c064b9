package job

import (
	"bytes"
	"cmp"
	"fmt"
	"path/filepath"
	"regexp"
	"slices"

	"github.com/gpurun/gpurun/launcher/lazy"
	"github.com/gpurun/gpurun/recipes/format"
	"github.com/gpurun/gpurun/recipes/script"
	"github.com/gpurun/gpurun/strategy"
)

// doubts removes values, and refuses changes, where the job's code may set or use a setting otherwise than its recipe
// says. The process's report counts instead.
func (r Resolved) doubts(plan strategy.Plan, knobs map[strategy.Knob]strategy.Range) {
	r.doubtDefaults(plan, knobs)
	r.doubtPrecision(plan, knobs)
	r.doubtReplaced(plan, knobs)
	r.doubtEvaluation(plan, knobs)
	r.doubtCheckpointing(plan, knobs)
	r.keepWorkers(knobs)
	r.keepComputed(knobs)
	keepSmallest(plan, knobs)
}

// ofFramework returns the range of a knob that a framework's recipe can change; false for another knob, and for one that
// the user describes. The search for an own script's settings has followed them through the code.
func (r Resolved) ofFramework(k strategy.Knob, knobs map[strategy.Knob]strategy.Range) (own strategy.Range, is bool) {
	own = knobs[k]
	return own, own.Absent == "" && !r.recipe.Knobs[k].Own && r.recipe.Name != script.RecipeName
}

// keepSmallest replaces the reason against a smaller micro batch where it is 1: no minimum would allow a smaller one.
func keepSmallest(plan strategy.Plan, knobs map[strategy.Knob]strategy.Range) {
	const k = strategy.MicroBatchSize
	if own := knobs[k]; plan[k] == "1" && own.Against != "" {
		own.Absent, own.Against, own.Floor = "the micro batch is 1 already", "", false
		knobs[k] = own
	}
}

// doubtDefaults removes a recognised framework's defaults if a shell script starts the program. The program was not read:
// it may be a fork of the framework's, with the same arguments and other defaults.
func (r Resolved) doubtDefaults(plan strategy.Plan, knobs map[strategy.Knob]strategy.Range) {
	if r.Job.shellScript() == "" || r.recipe.Name == "" || r.recipe.Name == script.RecipeName || !r.auto() {
		return
	}
	d := format.NewDraft(r.recipe.Recipe, r.command)
	set := func(k strategy.Knob) bool {
		return slices.ContainsFunc(d.Places(r.recipe.Knobs[k]), func(p format.Place) bool {
			_, found, err := p.Get(d, k)
			return found || err != nil
		})
	}
	for k, own := range knobs {
		if plan[k] == "" || r.recipe.Knobs[k].Own || own.By == strategy.ByHook || set(k) {
			continue
		}
		delete(plan, k)
		own.Told, own.Doubtful = true, true // the process reports it
		own.Absent = cmp.Or(own.Absent, "the command does not have it, and "+filepath.Base(r.Job.shellScript())+" starts a program that was not read, whose default is not known")
		knobs[k] = own
	}
}

// Code that may make a job's precision differ from its settings: weights that are cast, or loaded in 16 bits.
// Autocast counts if no setting of a recipe is known to control it. From transformers 5 on, a model is loaded
// in the type in which it was saved.
var (
	casts     = lazy.Regexp(`\.half\(\)|\.bfloat16\(\)|\btorch_dtype\s*=|\bdtype\s*=\s*(?:torch\.)?(?:bfloat16|float16|half)\b|\.to\([^()\n]*torch\.(?:bfloat16|float16|half)\b|set_default_dtype\(|load_in_[48]bit|BitsAndBytesConfig|\b(?:fp16|bf16)\s*=\s*True`)
	autocasts = lazy.Regexp(`\bautocast\(|mixed_precision\s*=|GradScaler\(|\bprecision\s*=`)
	loads     = lazy.Regexp(`\.from_pretrained\(`)
	inType    = format.Versions{"transformers": "<5"}
)

// loadsAsSaved are the recipes whose framework loads a model in the type in which it was saved, unless an
// argument sets another (LLaMA-Factory: model/patcher.py).
var loadsAsSaved = []string{"llama-factory"}

// doubtPrecision removes an assumed precision that the job's code may change. The process's report counts
// instead.
func (r Resolved) doubtPrecision(plan strategy.Plan, knobs map[strategy.Knob]strategy.Range) {
	own := knobs[strategy.Precision]
	told := own.By == strategy.ByHook || own.Told
	if own.Absent != "" || r.recipe.Knobs[strategy.Precision].Own || !told && plan[strategy.Precision] != "fp32" {
		return
	}
	if !slices.Contains(loadsAsSaved, r.recipe.Name) && !slices.ContainsFunc(r.sources(), func(f format.Source) bool {
		return casts().Match(f.Text) || told && autocasts().Match(f.Text) || inType.Outside(r.command.Packages) != "" && loads().Match(f.Text)
	}) {
		return
	}
	delete(plan, strategy.Precision)
	own.Doubtful = true
	knobs[strategy.Precision] = own
}

// assignment matches a statement that sets an attribute of an object of the job's code: the object, the attribute, and
// the value's last name if it is an attribute.
var assignment = lazy.Regexp(`(?m)^[ \t]*(\w+)\.(\w+)[ \t]*=(?:[ \t]*[\w.]+\.(\w+)[ \t]*(?:#.*)?$|[^=])`)

// doubtReplaced removes a value that the job's code may replace after its parser has read the arguments: an argument
// may have no effect then.
func (r Resolved) doubtReplaced(plan strategy.Plan, knobs map[strategy.Knob]strategy.Range) {
	for k := range knobs {
		own, is := r.ofFramework(k, knobs)
		names := r.recipe.Knobs[k].Attributes()
		if i := slices.IndexFunc(names, func(name string) bool { return r.set[name] != "" }); is && i >= 0 {
			delete(plan, k)
			own.Absent, own.Told, own.Doubtful = "the code may replace it: "+r.set[names[i]], true, true
			knobs[k] = own
		}
	}
}

// ownEvaluation matches a class of the job's that replaces the evaluation of a Trainer.
var ownEvaluation = lazy.Regexp(`(?s)class \w+\([^)]*Trainer[^)]*\):.*?\n[ \t]+def (?:evaluate|evaluation_loop|prediction_loop|get_eval_dataloader)\(self`)

// doubtEvaluation removes the batch size of an evaluation that the job's code does itself.
func (r Resolved) doubtEvaluation(plan strategy.Plan, knobs map[strategy.Knob]strategy.Range) {
	const k = strategy.EvalBatchSize
	if own, is := r.ofFramework(k, knobs); is {
		if at := r.first(ownEvaluation()); at != "" {
			delete(plan, k)
			own.Absent, own.Doubtful = "the code evaluates by itself ("+at+")", true
			knobs[k] = own
		}
	}
}

// askedCheckpointing matches a test of the setting.
var askedCheckpointing = lazy.Regexp(`(?m)^[ \t]*(?:el)?if\b.*checkpoint`)

// ownPretrained matches a class of the job's that extends the base of transformers' models, supports a word with which
// one allows checkpointing (transformers/modeling_utils.py: gradient_checkpointing_enable).
var (
	ownPretrained = lazy.Regexp(`(?m)^class \w+\([^)\n]*\bPreTrainedModel\b`)
	supports      = lazy.Regexp(`\bsupports_gradient_checkpointing\b|_supports_gradient|def (?:_set_gradient_checkpointing|gradient_checkpointing_enable)\(`)
)

// doubtCheckpointing refuses a setting that transformers refuses for the job's own model. It removes the value none of a
// setting where the job's code turns checkpointing on itself, and not only for the setting.
func (r Resolved) doubtCheckpointing(plan strategy.Plan, knobs map[strategy.Knob]strategy.Range) {
	const k = strategy.ActivationCheckpointing
	own, is := r.ofFramework(k, knobs)
	if !is {
		return
	}
	if own.By != strategy.ByHook {
		if at := r.first(ownPretrained()); at != "" && r.first(supports()) == "" {
			own.Absent = "transformers refuses it for a model that does not say supports_gradient_checkpointing, as the job's own (" + at + ")"
			knobs[k] = own
			return
		}
	}
	if plan[k] == "none" {
		if at := r.first(checkpointing(), supports()); at != "" && r.first(askedCheckpointing()) == "" {
			delete(plan, k)
			own.Absent, own.Doubtful = "the job's code turns it on ("+at+")", true
			knobs[k] = own
		}
	}
}

// ownShares matches code that divides a dataset among the loader's workers.
var ownShares = lazy.Regexp(`\bget_worker_info\(`)

// collates matches the head of a function that puts a batch together, and no other function after it: it divides
// nothing.
var collates = lazy.Regexp(`\bdef \w*collate\w*\((?:[^d]|d[^e]|de[^f]|def[^ ])*$`)

// keepWorkers refuses another number of loader workers where the job's dataset divides its samples among them: the
// batches would have other samples, and without workers some datasets read all of them on each rank.
func (r Resolved) keepWorkers(knobs map[strategy.Knob]strategy.Range) {
	const k = strategy.DataloaderWorkers
	own, users := knobs[k], r.recipe.Knobs[k].Own && r.recipe.Name != script.RecipeName
	if own.Absent != "" || users {
		return
	}
	if at := r.firstWhere(ownShares(), func(before, _ []byte) bool { return !collates().Match(before) }); at != "" {
		own.Absent = "the dataset divides its samples among the workers (" + at + "): with another number the batches would have others"
		knobs[k] = own
	}
}

// accumulation matches the rest of a line that also counts the accumulation.
var accumulation = lazy.Regexp(`(?i)accum`)

// keepComputed refuses another micro batch where the job's code divides a number by the framework's argument, as for the
// steps of a warmup, and not by the accumulation: gpurun would change that number, too.
func (r Resolved) keepComputed(knobs map[strategy.Knob]strategy.Range) {
	const k = strategy.MicroBatchSize
	own, is := r.ofFramework(k, knobs)
	if !is {
		return
	}
	names := r.recipe.Knobs[k].Attributes()
	if slices.Contains(names, "per_device_train_batch_size") {
		names = append(names, "train_batch_size") // a property of TrainingArguments that is computed from it
	}
	for _, name := range names {
		by := regexp.MustCompile(`/[ \t]*\(?[ \t]*[\w.]+\.` + regexp.QuoteMeta(name) + `\b.*`)
		if at := r.first(by, accumulation()); at != "" {
			own.Absent = "the code divides a number by it (" + at + "), which would be another one"
			knobs[k] = own
			return
		}
	}
}

// unset matches a test whether an attribute has no value.
var unset = lazy.Regexp(`^(?:el)?if (?:not .*\b(\w+)|.*\b(\w+) (?:is None|== None|== ""|== '')):`)

// isDefault reports whether the line before a statement, given the text before it, asks whether the attribute has no
// value: the statement then sets a default.
func isDefault(before []byte, name string) bool {
	lines := bytes.Split(bytes.TrimRight(before, " \t\n"), []byte("\n"))
	m := unset().FindSubmatch(bytes.TrimSpace(lines[len(lines)-1]))
	return m != nil && (string(m[1]) == name || string(m[2]) == name)
}

// inArguments reports whether a text ends in the method of a class that extends TrainingArguments which runs after its
// fields are set.
func inArguments(before []byte) bool {
	class := before[max(bytes.LastIndex(before, []byte("\nclass ")), 0):]
	head, body, _ := bytes.Cut(class, []byte(":"))
	method := body[max(bytes.LastIndex(body, []byte("    def ")), 0):]
	return bytes.Contains(head, []byte("TrainingArguments")) && bytes.HasPrefix(method, []byte("    def __post_init__("))
}

// assigned has the first place where the job's code sets an attribute, by its name: "train.py:620 sets args.bf16". An
// object that sets an attribute of itself only declares it, unless it is the framework's arguments. A copy of another
// object's attribute has the same value.
func (s Inspected) assigned() map[string]string {
	set := map[string]string{}
	for _, source := range s.sources() {
		for _, m := range assignment().FindAllSubmatchIndex(source.Text, -1) {
			object, name := string(source.Text[m[2]:m[3]]), string(source.Text[m[4]:m[5]])
			copied := m[6] >= 0 && string(source.Text[m[6]:m[7]]) == name // args.fp16 = accelerator.fp16
			if copied || set[name] != "" || object == "cls" || isDefault(source.Text[:m[0]], name) {
				continue
			}
			if object != "self" || inArguments(source.Text[:m[0]]) {
				set[name] = fmt.Sprintf("%s sets %s.%s", s.place(source, m[2]), object, name)
			}
		}
	}
	return set
}
