package job

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/gpurun/gpurun/recipes"
	"github.com/gpurun/gpurun/recipes/format"
	"github.com/gpurun/gpurun/recipes/script"
	"github.com/gpurun/gpurun/recipes/source"
	"github.com/gpurun/gpurun/strategy"
)

// trainers are words of which a source that trains with PyTorch has one.
var trainers = [][]byte{[]byte("torch"), []byte("transformers"), []byte("accelerate"), []byte("lightning"), []byte("deepspeed"), []byte("fabric")}

// mostSource bounds, in bytes, what is taken apart of a job's own code: the script comes
// first, then the modules in the order in which they are imported.
const mostSource = 4 << 20

// readingBudget is the processor time in which the settings of a script are looked for before
// it starts, once its interpreter runs. What is not found by then is unknown.
var readingBudget = 300 * time.Millisecond

// own reads the settings of a script that no recipe knows out of its source.
func (s Inspected) own(ctx context.Context, c choice) (choice, error) {
	found, err := s.script(ctx)
	if found == nil {
		return c, err
	}
	r := found.Recipe(func(r format.Recipe) string { return s.unsuited(c.command, r) })
	c.script, c.recipe = found, recipes.Recipe{Recipe: r}
	if c.evidence = found.Evidence(); len(c.evidence) == 0 && r.Resume.Latest == "" {
		c.recipe.Name = "" // which only says what is missing
	}
	c.warnings = append(c.warnings, found.Warnings()...)
	return c, nil
}

// script is what is said by a script's source and its modules; nil where there is
// none, or where nothing in it trains.
func (s Inspected) script(ctx context.Context) (*script.Analysis, error) {
	if s.Interpreter == nil || s.source == nil {
		return nil, nil
	}
	var sources []format.Source
	trains, size := false, 0
	for _, one := range s.sources() {
		if installed(one.Path) {
			continue
		}
		if size += len(one.Text); size > mostSource {
			break
		}
		sources = append(sources, format.Source{Path: s.shown(one.Path), Text: one.Text})
		for _, word := range trainers {
			trains = trains || bytes.Contains(one.Text, word)
		}
	}
	if !trains || installed(s.sourcePath) {
		return nil, nil
	}
	input, err := script.Input(sources, readingBudget.Seconds())
	if err != nil {
		return nil, err
	}
	printed, err := s.Interpreter.Output(ctx, script.Program, input)
	if err != nil {
		return nil, err
	}
	facts, err := script.Read(printed)
	if err != nil {
		return nil, err
	}
	found := script.Decide(facts, s.shown(s.sourcePath), s.Job.Argv, s.beside)
	return &found, nil
}

// shown is a path as a person would write it in the job's working directory.
func (s Inspected) shown(path string) string {
	if rel, err := filepath.Rel(s.Job.Workdir, path); err == nil && !strings.HasPrefix(rel, "..") {
		return rel
	}
	return path
}

// beside reads a configuration file of the job by a path as shown gives it; nil where
// there is none.
func (s Inspected) beside(path string) []byte {
	text, err := readFile(s.under(path), largestFile)
	if err != nil {
		return nil
	}
	return text
}

// unsuited is why a knob cannot be read where the source says that it is kept, such as
// in a file that is not there.
func (s Inspected) unsuited(command recipes.Command, r format.Recipe) string {
	loaded, err := s.load(command, r)
	if err == nil {
		_, _, err = recipes.Recipe{Recipe: r}.Read(loaded, recipes.Topology{Ranks: 1})
	}
	if err != nil {
		return strings.Join(strings.Fields(err.Error()), " ")
	}
	return ""
}

// computes matches source that may compute a loss of its own, or change more than gradients
// in a forward pass.
var computes = regexp.MustCompile(`(?m)^\s*(?:async )?def (?:forward|compute_loss|training_step|loss\w*|\w*_loss)\b|\bbackward\(|\bcross_entropy\(|Loss\(|return_loss`)

// judge says what the recipe and the job's own code show of the loss, and keeps the micro
// batch of a loss that compares its samples.
func (s Inspected) judge(ctx context.Context, c choice) (choice, error) {
	command, err := s.load(c.command, c.recipe.Recipe)
	if err != nil {
		command = c.command // reading the plan complains of a file that is missing
	}
	of := c.recipe.LossOf(command)
	c.loss = of.Known()
	if of.Class == format.LossFeatures || !slices.ContainsFunc(s.sources(), func(f format.Source) bool { return computes.Match(f.Text) }) {
		return c, nil
	}
	found, err := s.script(ctx)
	if err != nil {
		c.loss = strategy.Loss{Class: strategy.Average, Reason: "the job's own code, which may compute a loss, was not read"}
	}
	if found == nil {
		return c, err
	}
	if why := found.Unequal(of.Computed()); why != "" {
		c.recipe.Knobs = maps.Clone(c.recipe.Knobs)
		micro := c.recipe.Knobs[strategy.MicroBatchSize]
		micro.Unless = append(slices.Clip(micro.Unless), format.Condition{Always: true, Reason: why})
		c.recipe.Knobs[strategy.MicroBatchSize] = micro
	}
	own, computed := found.LibraryLoss()
	switch {
	case !of.Computed() || !computed:
	case own.Class == strategy.Exact:
		c.loss = strategy.Loss{Class: strategy.Exact, Reason: own.Reason + "; " + of.Reason, Own: true}
	default:
		c.loss = own
	}
	return c, nil
}

// ownSchedules are the recipes whose jobs make the learning rate's schedule themselves;
// the others' frameworks count optimizer steps. A job of [knobs] alone has no name.
var ownSchedules = []string{"", "own-script", "accelerate", "deepspeed", "lightning-script"}

// keepSchedule leaves the micro batch of a job alone whose learning rate follows from the
// number of batches: there would be more of them, and as many optimizer steps as before.
func (r Resolved) keepSchedule(knobs map[strategy.Knob]strategy.Range) (warnings []string) {
	micro := knobs[strategy.MicroBatchSize]
	if micro.Absent != "" || !slices.Contains(ownSchedules, r.recipe.Name) {
		return nil
	}
	warnings = guest(batchSchedule, func() error {
		micro.Absent = r.scheduleOfBatches()
		return nil
	})
	if len(warnings) > 0 {
		micro.Absent = warnings[0]
	}
	if micro.Absent != "" {
		knobs[strategy.MicroBatchSize] = micro
	}
	return warnings
}

// scheduleOfBatches says where the learning rate follows from the number of batches; empty
// where it does nowhere.
func (r Resolved) scheduleOfBatches() string {
	for _, s := range r.sources() {
		if schedule, found := source.BatchSchedule(s.Text); found {
			file, err := filepath.Rel(r.Job.Workdir, s.Path)
			if err != nil {
				file = s.Path
			}
			return fmt.Sprintf("%s:%d: %s: with smaller ones the learning rate would run another way; count optimizer steps there", file, schedule.Line, schedule)
		}
	}
	return ""
}

// What in a job's code may make its precision another than what its settings say: weights
// that are cast, or loaded in 16 bits. Autocast counts where no setting of a recipe is known
// to turn it. From transformers 5 on a model is loaded in the type that it was saved in.
var (
	casts     = regexp.MustCompile(`\.half\(\)|\.bfloat16\(\)|\btorch_dtype\s*=|\bdtype\s*=\s*(?:torch\.)?(?:bfloat16|float16|half)\b|\.to\([^()\n]*torch\.(?:bfloat16|float16|half)\b|set_default_dtype\(|load_in_[48]bit|BitsAndBytesConfig|\b(?:fp16|bf16)\s*=\s*True`)
	autocasts = regexp.MustCompile(`\bautocast\(|mixed_precision\s*=|GradScaler\(|\bprecision\s*=`)
	loads     = regexp.MustCompile(`\.from_pretrained\(`)
	inType    = format.Versions{"transformers": "<5"}
)

// loadsAsSaved are the recipes whose framework loads a model in the type that it was saved in
// where no argument says another (LLaMA-Factory: model/patcher.py).
var loadsAsSaved = []string{"llama-factory"}

// doubtPrecision forgets a precision that is assumed, and that the job's code may change.
// What a process says of it counts.
func (r Resolved) doubtPrecision(plan strategy.Plan, knobs map[strategy.Knob]strategy.Range) {
	own := knobs[strategy.Precision]
	told := own.By == strategy.ByHook || own.Told
	if own.Absent != "" || r.recipe.Knobs[strategy.Precision].Own || !told && plan[strategy.Precision] != "fp32" {
		return
	}
	if !slices.Contains(loadsAsSaved, r.recipe.Name) && !slices.ContainsFunc(r.sources(), func(f format.Source) bool {
		return casts.Match(f.Text) || told && autocasts.Match(f.Text) || inType.Outside(r.command.Packages) != "" && loads.Match(f.Text)
	}) {
		return
	}
	delete(plan, strategy.Precision)
	own.Doubtful = true
	knobs[strategy.Precision] = own
}
