package job

import (
	"regexp"
	"slices"

	"github.com/gpurun/gpurun/recipes/format"
	"github.com/gpurun/gpurun/strategy"
)

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
