package recipes

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/gpurun/gpurun/recipes/format"
	"github.com/gpurun/gpurun/strategy"
)

// The rule deepspeed-config keeps the settings of a DeepSpeed configuration consistent: the three numbers
// of the batch, the settings that each ZeRO stage and each offload needs, and the configuration
// of a job that has none yet.

// Keys of a DeepSpeed configuration (https://www.deepspeed.ai/docs/config-json/). Blocks such as
// zero_optimization refuse unknown keys.
const (
	dsTrain     = "train_batch_size"
	dsMicro     = "train_micro_batch_size_per_gpu"
	dsAccum     = "gradient_accumulation_steps"
	dsZero      = "zero_optimization"
	dsOptimizer = dsZero + ".offload_optimizer"
	dsParam     = dsZero + ".offload_param"
	dsGather    = dsZero + ".stage3_gather_16bit_weights_on_model_save"
	dsUntested  = "zero_allow_untested_optimizer"
	dsForceCPU  = "zero_force_ds_cpu_optimizer"
	dsClientKey = "optimizer"
	dsPin       = ".pin_memory"
	dsDevice    = ".device"
	dsElastic   = "elasticity.enabled"
	dsNVMe      = ".nvme_path"
	dsBatchHint = "DeepSpeed wants train_batch_size to be the product of micro batch, accumulation and data-parallel ranks"
)

// Rule is for a job with a DeepSpeed configuration: alone, or under another framework, whose
// arguments the configuration has to agree with and which replaces every "auto".
var deepspeedRule = format.Rule{Read: readDeepSpeed, Apply: applyDeepSpeed}

// offloads are the configuration's blocks for the offload knobs.
var offloadBlocks = map[strategy.Knob]string{strategy.OffloadOptimizer: dsOptimizer, strategy.OffloadParam: dsParam}

// A config is the configuration file of a draft. After its first error it changes nothing more.
type deepspeedConfig struct {
	d     *format.Draft
	place *format.InFile
	file  string
	// alone: no argument repeats the batch sizes, so DeepSpeed derives the missing ones.
	alone bool
	err   error
}

// configOf finds the configuration by the place of the sharding knob; nil if the command names
// none.
func deepspeedConfigOf(d *format.Draft) *deepspeedConfig {
	places := d.Recipe.Knobs[strategy.Sharding].Places
	if len(places) == 0 || places[0].InFile() == nil {
		return nil
	}
	c := &deepspeedConfig{d: d, place: places[0].InFile()}
	file, _, named := c.place.Find(d)
	if !named {
		return nil
	}
	c.file = file
	c.alone = !slices.ContainsFunc(d.Recipe.Knobs[strategy.MicroBatchSize].Places,
		func(p format.Place) bool { return p.InFile() == nil })
	return c
}

// Holds reports whether a place is in the job's DeepSpeed configuration, and the text of that
// file is known.
func inDeepSpeedConfig(d *format.Draft, p format.Place) bool {
	in, c := p.InFile(), deepspeedConfigOf(d)
	if in == nil || c == nil || !slices.Contains(d.Recipe.Rules, "deepspeed-config") {
		return false
	}
	file, _, found := in.Find(d)
	return found && file == c.file && d.Loaded(file)
}

// number is a whole number of the configuration; auto and a missing key are none.
func (c *deepspeedConfig) number(key string) (n int, found bool, err error) {
	value, found, err := c.d.Value(c.file, key)
	if err != nil || !found || value == nil || value == "auto" {
		return 0, false, err
	}
	switch v := value.(type) {
	case int64:
		n = int(v)
	case float64:
		n = int(v)
		found = float64(n) == v
	default:
		found = false
	}
	if !found || n < 1 {
		return 0, false, fmt.Errorf("%s: %s: %v is not a whole number of at least 1", format.Shown(c.file), key, value)
	}
	return n, true, nil
}

// has reports whether the configuration has a key.
func (c *deepspeedConfig) has(key string) bool {
	value, found, err := c.d.Value(c.file, key)
	return err == nil && found && value != nil
}

// fill sets a key that the configuration does not have.
func (c *deepspeedConfig) fill(key string, value any) {
	if !c.has(key) {
		c.set(key, value)
	}
}

func (c *deepspeedConfig) set(key string, value any) {
	if c.err == nil {
		c.err = c.place.Change(c.d, key, value)
	}
}

func (c *deepspeedConfig) fail(err error) { c.err = cmp.Or(c.err, err) }

// batchSizes are the configuration's; 0 is missing or auto.
type batchSizes struct{ train, micro, accum int }

func (c *deepspeedConfig) batch() (b batchSizes, err error) {
	for key, into := range map[string]*int{dsTrain: &b.train, dsMicro: &b.micro, dsAccum: &b.accum} {
		n, found, err := c.number(key)
		if err != nil {
			return batchSizes{}, err
		}
		if found {
			*into = n
		}
	}
	return b, nil
}

// derived completes the three numbers, of which a configuration may omit one or two, as DeepSpeed
// does, but refuses numbers that DeepSpeed would round.
func (b batchSizes) derived(ranks int) (batchSizes, error) {
	if b.micro == 0 && b.train == 0 {
		return b, fmt.Errorf("neither %s nor %s is given as a number", dsTrain, dsMicro)
	}
	full := b
	switch {
	case b.train == 0 || b.micro > 0 && b.accum > 0:
		full.accum = max(b.accum, 1)
	case b.micro == 0:
		full.accum = max(b.accum, 1)
		full.micro = b.train / (full.accum * ranks)
	default:
		full.accum = b.train / (b.micro * ranks)
	}
	product := full.micro * full.accum * ranks
	if b.train == 0 {
		full.train = product
	}
	if product != full.train || product == 0 {
		return b, fmt.Errorf("%s: %d is not %d × %d × %d", dsBatchHint, full.train, full.micro, full.accum, ranks)
	}
	return full, nil
}

func readDeepSpeed(d *format.Draft, plan strategy.Plan, ranges map[strategy.Knob]strategy.Range) error {
	c := deepspeedConfigOf(d)
	if c == nil {
		if d.Recipe.Creation != nil {
			offerConfig(d, plan, ranges)
		}
		return nil
	}
	if on, _, _ := d.Value(c.file, dsElastic); on == true {
		leaveBatch(plan, ranges, "elasticity in "+format.Shown(c.file)+" chooses it")
	} else if err := c.readBatch(plan); err != nil {
		if c.impossible() {
			return fmt.Errorf("%s: %w", format.Shown(c.file), err)
		}
		leaveBatch(plan, ranges, fmt.Sprintf("%s: %v", format.Shown(c.file), err))
	}
	c.checkAccumulation(plan, ranges)
	if reason := ownBatches(d.Original); c.alone && reason != "" {
		leaveBatch(plan, ranges, reason)
	}
	for knob, block := range offloadBlocks {
		if r := ranges[knob]; r.Absent == "" && d.At.NVMePath == "" && !c.has(block+dsNVMe) {
			r.Values = withoutNVMe(r.Values)
			ranges[knob] = r
		}
	}
	if r := ranges[strategy.Precision]; r.Absent == "" {
		r.Weights = true // the engine turns the whole model into the 16-bit type
		ranges[strategy.Precision] = r
	}
	if _, known := plan[strategy.PinMemory]; !known && c.alone {
		if offloaded(plan[strategy.OffloadOptimizer]) || offloaded(plan[strategy.OffloadParam]) {
			plan[strategy.PinMemory] = "true" // the default since 0.19.6
		} else {
			ranges[strategy.PinMemory] = strategy.Range{Absent: "nothing is offloaded, so that nothing is pinned"}
		}
	}
	return nil
}

// readBatch derives the configuration's missing numbers, and compares the others with the
// arguments.
func (c *deepspeedConfig) readBatch(plan strategy.Plan) error {
	b, err := c.batch()
	if err != nil {
		return err
	}
	if !c.alone {
		var micro, accum bool
		b.micro, micro = plan.Number(strategy.MicroBatchSize)
		b.accum, accum = plan.Number(strategy.GradientAccumulationSteps)
		if !micro || !accum {
			return nil // the arguments leave it to the framework
		}
	}
	full, err := b.derived(c.d.At.Sharing())
	if err != nil {
		return err
	}
	plan[strategy.MicroBatchSize] = strategy.Number(full.micro)
	plan[strategy.GradientAccumulationSteps] = strategy.Number(full.accum)
	return nil
}

// impossible reports whether DeepSpeed refuses the batch for any number of data-parallel ranks,
// which the script may know better than gpurun.
func (c *deepspeedConfig) impossible() bool {
	b, err := c.batch()
	step := b.micro * b.accum
	return err == nil && c.alone && b.train > 0 && step > 0 && b.train%step != 0 &&
		!mentions(c.d.Original, dsTrain, dsMicro, dsAccum)
}

// leaveBatch excludes the batch from changes: it is not known, or cannot be changed by the
// configuration alone.
func leaveBatch(plan strategy.Plan, ranges map[strategy.Knob]strategy.Range, reason string) {
	delete(plan, strategy.MicroBatchSize)
	delete(plan, strategy.GradientAccumulationSteps)
	format.LeaveBatch(ranges, reason)
}

func offloaded(device strategy.Value) bool { return device == "cpu" || device == "nvme" }

// checkAccumulation removes the batch knobs if a missing key makes the job accumulate less than
// its arguments: a change of both would change the global batch.
func (c *deepspeedConfig) checkAccumulation(plan strategy.Plan, ranges map[strategy.Knob]strategy.Range) {
	accum, known := plan.Number(strategy.GradientAccumulationSteps)
	if c.alone || !known || accum == 1 || c.has(dsAccum) {
		return
	}
	format.LeaveBatch(ranges,
		fmt.Sprintf("%s has no %s, so Accelerate uses 1, but the arguments set %d: set it to \"auto\"", format.Shown(c.file),
			dsAccum, accum))
}
