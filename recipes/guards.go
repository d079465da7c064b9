package recipes

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/gpurun/gpurun/recipes/format"
	"github.com/gpurun/gpurun/strategy"
)

// Several recipes describe one framework: the Trainer's arguments are on the command, in a file, or in code. What
// a launcher or another setting decides about a knob is the same for all of them, and is declared here once. Each
// guard is a condition of the knobs that it concerns.

// A guard is a condition that prevents a change of some knobs, and may give their values.
type guard struct {
	knobs []strategy.Knob
	format.Condition
}

// Variables by which accelerate launch passes its configuration on (accelerate/utils/launch.py).
const (
	acceleratePrecision = "ACCELERATE_MIXED_PRECISION"
	accelerateFSDP      = "ACCELERATE_USE_FSDP"
	accelerateZeRO      = "ACCELERATE_USE_DEEPSPEED"
	accelerateZeROFile  = "ACCELERATE_DEEPSPEED_CONFIG_FILE"
)

const (
	usesFSDP    = "the job uses FSDP"
	setsZeRO    = "accelerate launch sets the ZeRO stage itself: put it into a DeepSpeed configuration, and name that one"
	checkpoints = "FSDP checkpoints activations"
	eightBit    = "the 8-bit optimizers of bitsandbytes do not work on what FSDP 2 shards"
	replaced    = "Accelerate would replace the optimizer by another algorithm, DeepSpeedCPUAdam"
)

var (
	offloads   = []strategy.Knob{strategy.OffloadOptimizer, strategy.OffloadParam}
	sharding   = []strategy.Knob{strategy.Sharding}
	optimizers = []strategy.Knob{strategy.Optimizer}
	// hostless are optimizers that DeepSpeed does not run on the host.
	hostless = []strategy.Value{"adafactor", "adamw-8bit", "paged-adamw-8bit", "sgd"}
)

// byVariable is the condition that a variable has one of some words, or any.
func byVariable(name, reason string, value strategy.Value, is ...string) format.Condition {
	return format.Condition{Place: format.Variable(name), Is: is, Value: value, Reason: reason}
}

// unsharded returns a condition that counts only if the command names no DeepSpeed configuration.
func unsharded(c format.Condition) format.Condition {
	c.Missing = true
	return c
}

// byWords are guards by which each word of a setting is a value of the knobs: the value itself, or its index.
func byWords(knobs []strategy.Knob, at format.Place, reason string, indexed bool,
	values ...strategy.Value) (guards []guard) {
	for i, value := range values {
		word := string(value)
		if indexed {
			word = strconv.Itoa(i)
		}
		guards = append(guards, guard{knobs, format.Condition{Place: at, Is: []string{word}, Value: value, Reason: reason}})
	}
	return guards
}

// stages are the values of sharding by the number of DeepSpeed's stage.
var stages = []strategy.Value{"none", "zero1", "zero2", "zero3"}

// launchGuards are the settings of accelerate launch that decide about knobs. The first one that has a value for a
// knob counts.
func launchGuards() []guard {
	zero := func(knobs []strategy.Knob, name string, indexed bool, values ...strategy.Value) []guard {
		guards := byWords(knobs, format.Variable("ACCELERATE_DEEPSPEED_"+name), setsZeRO, indexed, values...)
		for i := range guards {
			guards[i].Condition = unsharded(guards[i].Condition)
		}
		return guards
	}
	return slices.Concat([]guard{
		{sharding, byVariable("FSDP_SHARDING_STRATEGY", "accelerate launch uses FSDP, which shards nothing", "none",
			"NO_SHARD", "3")},
		{sharding, byVariable(accelerateFSDP, usesFSDP, "fsdp", "true")},
		{offloads, byVariable("FSDP_OFFLOAD_PARAMS", usesFSDP, "cpu", "true")},
		{offloads, byVariable(accelerateFSDP, usesFSDP, "none", "true")},
		{[]strategy.Knob{strategy.ActivationCheckpointing},
			byVariable("FSDP_ACTIVATION_CHECKPOINTING", checkpoints, "full", "true")},
	},
		zero(sharding, "ZERO_STAGE", true, stages...),
		zero(offloads[:1], "OFFLOAD_OPTIMIZER_DEVICE", false, "cpu", "nvme"),
		zero(offloads[1:], "OFFLOAD_PARAM_DEVICE", false, "cpu", "nvme"),
		[]guard{ // DeepSpeedPlugin's defaults
			{sharding, unsharded(byVariable(accelerateZeRO, setsZeRO, "zero2", "true"))},
			{offloads, unsharded(byVariable(accelerateZeRO, setsZeRO, "none", "true"))},
			{optimizers, byVariable("ACCELERATE_DEEPSPEED_OFFLOAD_OPTIMIZER_DEVICE",
				"under offload Accelerate replaces the optimizer by DeepSpeedCPUAdam", "", "cpu", "nvme")},
			{optimizers, without(byVariable(accelerateFSDP, eightBit, "", "true"), "adamw-8bit", "paged-adamw-8bit")},
			{optimizers, without(format.Condition{Knob: strategy.OffloadOptimizer, Is: []string{"cpu", "nvme"},
				Reason: replaced}, hostless...)},
			{offloads[:1], without(format.Condition{Knob: strategy.Optimizer, Is: format.Texts(hostless), Reason: replaced},
				"cpu", "nvme")},
		})
}

// without returns a condition that rules out only some values.
func without(c format.Condition, values ...strategy.Value) format.Condition {
	c.Values = values
	return c
}

// fileGuards read the launcher's DeepSpeed configuration for knobs that have no place in it.
func fileGuards() []guard {
	const reason = "the DeepSpeed configuration of accelerate launch has it"
	key := func(path string) format.Place { return format.KeyByVariable(path, accelerateZeROFile) }
	guards := byWords(sharding, key("zero_optimization.stage"), reason, true, stages...)
	for _, k := range offloads {
		guards = append(guards, byWords([]strategy.Knob{k}, key("zero_optimization."+string(k)+".device"), reason, false,
			"cpu", "nvme", "none")...)
	}
	for _, dtype := range []strategy.Value{"bf16", "fp16"} {
		is := format.Condition{Place: key(string(dtype) + ".enabled"), Is: []string{"true"}, Value: dtype, Reason: reason}
		guards = append(guards, guard{[]strategy.Knob{strategy.Precision}, is})
	}
	return guards
}

// precisionGuards are for jobs whose precision the launcher sets, unless their own arguments do.
func precisionGuards() []guard {
	return byWords([]strategy.Knob{strategy.Precision}, format.Variable(acceleratePrecision), "accelerate launch sets it",
		false, "bf16", "fp16", "fp8")
}

// guardLaunch adds what accelerate launch decides to a recipe whose jobs make an Accelerator.
func guardLaunch(r *format.Recipe) {
	for _, g := range fileGuards() {
		inFile := func(p format.Place) bool { return p.InFile() != nil }
		if knob := r.Knobs[g.knobs[0]]; !slices.ContainsFunc(knob.Places, inFile) {
			addGuards(r, []guard{g})
		}
	}
	addGuards(r, launchGuards())
}

// Guarded returns the recipe with the guards of accelerate launch if that started the command, and the recipe
// describes no framework: a script that accelerate launch starts makes an Accelerator.
func (r Recipe) Guarded(cmd Command) Recipe {
	if _, launched := format.NewDraft(r.Recipe, cmd).Variable(acceleratePrecision); !launched || r.Detection.Signs() {
		return r
	}
	own := r.Knobs
	r.Knobs = map[strategy.Knob]format.Knob{}
	guardLaunch(&r.Recipe)
	addGuards(&r.Recipe, precisionGuards())
	maps.Copy(r.Knobs, own)
	return r
}

// trainerSetting is a setting of the Trainer that every recipe of it has a place for. The places of the others are
// found from it.
const trainerSetting = "gradient_accumulation_steps"

// guardTrainer adds what the launcher and the Trainer's own settings decide, to a recipe of the Trainer or of a
// framework that trains with it.
func guardTrainer(r *format.Recipe) {
	const refused = checkpoints + ", and the Trainer refuses both"
	checkpointing := []strategy.Knob{strategy.ActivationCheckpointing}
	guards := []guard{{checkpointing, byVariable("FSDP_ACTIVATION_CHECKPOINTING", refused, "full", "true")}}
	for _, p := range r.Knobs[strategy.GradientAccumulationSteps].Places {
		if p.Auto { // the DeepSpeed configuration, which repeats some of the Trainer's settings
			continue
		}
		for _, key := range []string{"activation_checkpointing", "fsdp_activation_checkpointing"} {
			for _, at := range p.Inside(trainerSetting, "fsdp_config", key) {
				guards = append(guards,
					guard{checkpointing, format.Condition{Place: at, Is: []string{"true"}, Value: "full", Reason: refused}})
			}
		}
		if at, ok := p.Sibling(trainerSetting, "fsdp_config"); ok && len(p.Inside(trainerSetting, "fsdp_config", "")) == 0 {
			guards = append(guards,
				guard{checkpointing, format.Condition{Place: at, Unknown: true,
					Reason: "fsdp_config may checkpoint activations, and the Trainer refuses both"}})
		}
		if at, ok := p.Sibling(trainerSetting, "fsdp"); ok {
			guards = append(guards, fsdpGuards(at)...)
		}
	}
	addGuards(r, guards)
	if len(r.Knobs[strategy.Precision].Places) > 0 {
		addGuards(r, precisionGuards())
	}
	guardLaunch(r)
}

// fsdpGuards are for the Trainer's setting fsdp: words such as "full_shard auto_wrap offload".
func fsdpGuards(at format.Place) []guard {
	var offloaded []string
	for _, kind := range []string{"full_shard", "shard_grad_op", "hybrid_shard", "hybrid_shard_zero2"} {
		offloaded = append(offloaded, kind+" offload", kind+" auto_wrap offload", kind+" offload auto_wrap")
	}
	return []guard{
		{sharding, format.Condition{Place: at, Is: []string{"no_shard", "no_shard auto_wrap"}, Value: "none",
			Reason: usesFSDP}},
		{sharding, format.Condition{Place: at, Value: "fsdp", Reason: usesFSDP}},
		{offloads, format.Condition{Place: at, Is: offloaded, Value: "cpu", Reason: usesFSDP}},
		{offloads, format.Condition{Place: at, Value: "none", Reason: usesFSDP}},
		{optimizers, without(format.Condition{Place: at, Reason: eightBit}, "adamw-8bit", "paged-adamw-8bit")},
	}
}

// guardAxolotl is for Axolotl, which shards where a configuration has fsdp_config, with or without fsdp.
func guardAxolotl(r *format.Recipe) {
	for _, p := range r.Knobs[strategy.GradientAccumulationSteps].Places {
		if at, ok := p.Sibling(trainerSetting, "fsdp_config"); ok && p.InFile() != nil {
			guards := []guard{{sharding, format.Condition{Place: at, Value: "fsdp", Reason: usesFSDP}}}
			for _, key := range []string{"offload_params", "fsdp_offload_params"} {
				for _, offload := range p.Inside(trainerSetting, "fsdp_config", key) {
					guards = append(guards,
						guard{offloads, format.Condition{Place: offload, Is: []string{"true"}, Value: "cpu", Reason: usesFSDP}})
				}
			}
			addGuards(r, append(guards, guard{offloads, format.Condition{Place: at, Value: "none", Reason: usesFSDP}}))
		}
	}
}

// strategies are the words of Lightning's Trainer for its strategy that shard, with what they offload.
var strategies = []struct {
	word                       string
	sharding, optimizer, param strategy.Value
}{
	{"deepspeed_stage_1", "zero1", "none", "none"},
	{"deepspeed_stage_1_offload", "zero1", "cpu", "none"},
	{"deepspeed_stage_2", "zero2", "none", "none"},
	{"deepspeed_stage_2_offload", "zero2", "cpu", "none"},
	{"deepspeed_stage_3", "zero3", "none", "none"},
	{"deepspeed_stage_3_offload", "zero3", "cpu", "cpu"},
	{"deepspeed_stage_3_offload_nvme", "zero3", "nvme", "nvme"},
	{"fsdp", "fsdp", "none", "none"},
	{"fsdp_cpu_offload", "fsdp", "cpu", "cpu"},
}

// guardStrategy adds what the strategy of Lightning's Trainer decides: as an argument, in a file, or in code.
func guardStrategy(r *format.Recipe) {
	const setting, decides = "accumulate_grad_batches", "the strategy sets it itself"
	all := slices.Concat(sharding, offloads)
	var guards []guard
	for _, p := range r.Knobs[strategy.GradientAccumulationSteps].Places {
		for _, from := range []string{setting, "trainer." + setting} {
			table := strings.TrimSuffix(from, setting)
			at, ok := p.Sibling(from, table+"strategy")
			if !ok || table == "" && p.InFile() != nil {
				continue
			}
			for _, s := range strategies {
				is := format.Condition{Place: at, Is: []string{s.word}, Reason: decides}
				for k, value := range map[strategy.Knob]strategy.Value{strategy.Sharding: s.sharding,
					strategy.OffloadOptimizer: s.optimizer, strategy.OffloadParam: s.param} {
					is.Value = value
					guards = append(guards, guard{[]strategy.Knob{k}, is})
				}
			}
			for _, class := range p.Inside(from, table+"strategy", "class_path") {
				guards = append(guards,
					guard{all, format.Condition{Place: class, Reason: "the strategy is a class with arguments"}})
			}
			if clip, ok := p.Sibling(from, table+"gradient_clip_algorithm"); ok {
				guards = append(guards,
					guard{all, format.Condition{Place: clip, Is: []string{"value"},
						Reason: "Lightning refuses gradient_clip_algorithm = value under DeepSpeed"}})
			}
			for _, k := range all { // without a configuration, DeepSpeedStrategy's defaults
				value := map[bool]strategy.Value{true: "zero2", false: "none"}[k == strategy.Sharding]
				guards = append(guards, guard{[]strategy.Knob{k},
					unsharded(format.Condition{Place: at, Is: []string{"deepspeed"}, Value: value, Reason: decides})})
			}
		}
	}
	for _, class := range []string{"DeepSpeedStrategy", "FSDPStrategy"} {
		guards = append(guards,
			guard{all, format.Condition{Place: format.CallOf("lightning.pytorch.strategies." + class), Unknown: true,
				Reason: "the code makes its strategy by " + class}})
	}
	addGuards(r, guards)
}

// guardFSDP is for frameworks that shard with FSDP wherever there are several ranks.
func guardFSDP(r *format.Recipe) {
	reason := r.Knobs[strategy.Sharding].Absent
	addGuards(r, []guard{
		{sharding, format.Condition{Ranks: 1, Value: "none", Reason: "there is one rank"}},
		{sharding, format.Condition{Always: true, Value: "fsdp", Reason: reason}},
	})
}

// addGuards adds guards to the knobs of a recipe, behind its own conditions. Certain conditions come first.
func addGuards(r *format.Recipe, guards []guard) {
	for _, g := range guards {
		for _, k := range g.knobs {
			knob, known := r.Knobs[k]
			if !known {
				knob.Absent = Recipe{*r}.unknown()
			}
			knob.Unless = slices.Insert(slices.Clone(knob.Unless), behind(knob.Unless, g.Unknown), g.Condition)
			r.Knobs[k] = knob
		}
	}
}

// behind is the place of a condition among others: an unknown one comes last, any other before the unknown ones.
func behind(conditions []format.Condition, unknown bool) int {
	at := slices.IndexFunc(conditions, func(c format.Condition) bool { return c.Unknown })
	if at < 0 || unknown {
		return len(conditions)
	}
	return at
}

// decided gives knobs the values that the user's other settings give them: FSDP of the launcher. A setting of the
// job itself that is on stays, since either turns the knob on.
func decided(d *format.Draft, plan strategy.Plan, ranges map[strategy.Knob]strategy.Range) {
	for _, k := range strategy.Knobs {
		for _, c := range d.Unless(d.Recipe.Knobs[k], plan) {
			if c.Unknown && c.Values == nil {
				break
			}
			if c.Value == "" {
				continue
			}
			if off := strategy.Vocabulary(k); plan[k] == "" || len(off) > 0 && plan[k] == off[0] {
				plan[k] = c.Value
			}
			ranges[k] = strategy.Range{Absent: c.Reason}
			break
		}
	}
}
