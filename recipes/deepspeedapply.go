package recipes

import (
	"encoding/json"
	"fmt"
	"slices"

	"github.com/gpurun/gpurun/recipes/format"
	"github.com/gpurun/gpurun/strategy"
)

func applyDeepSpeed(d *format.Draft, old, plan strategy.Plan) error {
	c := deepspeedConfigOf(d)
	if c == nil && d.Recipe.Creation != nil {
		if made, err := createConfig(d, old, plan); !made || err != nil {
			return err
		}
		c = deepspeedConfigOf(d)
		for _, k := range createdKnobs {
			if block := offloadBlocks[k]; block != "" && offloaded(plan[k]) {
				c.set(block+dsDevice, string(plan[k]))
			}
		}
	}
	if c == nil {
		return nil
	}
	c.applyBatch(old, plan)
	c.applySharding(old, plan)
	c.applyOffload(old, plan, strategy.OffloadOptimizer)
	c.applyOffload(old, plan, strategy.OffloadParam)
	c.applyPinning(old, plan)
	return c.err
}

// applyBatch keeps the three numbers consistent: written ones get the plan's values, and as few
// as possible are added.
func (c *deepspeedConfig) applyBatch(old, plan strategy.Plan) {
	micro, accum := plan[strategy.MicroBatchSize], plan[strategy.GradientAccumulationSteps]
	if micro == old[strategy.MicroBatchSize] && accum == old[strategy.GradientAccumulationSteps] {
		return
	}
	m, _ := micro.Number()
	a, _ := accum.Number()
	b, err := c.batch()
	c.fail(err)
	if global := m * a * c.d.At.Sharing(); b.train > 0 && b.train != global {
		c.set(dsTrain, global)
	}
	if !c.alone {
		// Numbers that repeat the arguments change with them.
		if b.micro > 0 && b.micro != m {
			c.set(dsMicro, m)
		}
		if b.accum > 0 && b.accum != a {
			c.set(dsAccum, a)
		}
		c.fill(dsMicro, "auto")
		c.fill(dsAccum, "auto") // Accelerate takes a missing accumulation as 1, whatever the arguments are
		return
	}
	switch {
	case b.micro == 0 && b.accum == 0 && a != 1:
		c.fill(dsMicro, m)
	case b.train == 0 && b.accum == 0 && a != 1:
		c.fill(dsAccum, a)
	}
	c.checkBatch(m, a)
}

// checkBatch reads the batch again as DeepSpeed will.
func (c *deepspeedConfig) checkBatch(micro, accum int) {
	b, err := c.batch()
	c.fail(err)
	if c.err != nil {
		return
	}
	full, err := b.derived(c.d.At.Sharing())
	if err != nil {
		c.fail(fmt.Errorf("%s: %w", format.Shown(c.file), err))
	} else if full.micro != micro || full.accum != accum {
		c.fail(fmt.Errorf("%s: DeepSpeed would derive micro batch %d and accumulation %d, not %d and %d",
			format.Shown(c.file), full.micro, full.accum, micro, accum))
	}
}

// applySharding adds the settings that a higher ZeRO stage needs.
func (c *deepspeedConfig) applySharding(old, plan strategy.Plan) {
	from, to := old[strategy.Sharding], plan[strategy.Sharding]
	if from == to {
		return
	}
	if from == "none" && c.alone && !c.has(dsClientKey) {
		c.fill(dsUntested, true) // ZeRO refuses a script's own optimizer that it was not tested with
	}
	if to == "zero3" {
		c.fill(dsGather, true) // without it a saved model has only shards of its weights
		c.fillLive()
	}
}

// fillLive bounds the parameters that ZeRO-3 keeps gathered.
func (c *deepspeedConfig) fillLive() {
	c.fill(dsZero+".stage3_max_live_parameters", liveParameters)
	c.fill(dsZero+".stage3_max_reuse_distance", liveParameters)
}

// applyOffload checks that the stage can offload, and completes the block.
func (c *deepspeedConfig) applyOffload(old, plan strategy.Plan, k strategy.Knob) {
	device, stage, block := plan[k], plan[strategy.Sharding], offloadBlocks[k]
	switch {
	case !offloaded(device):
		return
	case k == strategy.OffloadParam && stage != "zero3":
		c.fail(fmt.Errorf("set %s to %s: DeepSpeed offloads parameters at ZeRO stage 3 only, and the plan has %s", k, device,
			stage))
	case device == "nvme" && stage != "zero3":
		c.fail(fmt.Errorf("set %s to nvme: DeepSpeed offloads to NVMe at ZeRO stage 3 only, and the plan has %s", k, stage))
	case stage == "none":
		c.fail(fmt.Errorf("set %s to %s: DeepSpeed offloads at ZeRO stages 1 to 3 only", k, device))
	case device == old[k]:
		return
	}
	if k == strategy.OffloadOptimizer && c.alone && !offloaded(old[k]) && !c.has(dsClientKey) {
		c.fill(dsForceCPU, false) // the engine refuses a script's own optimizer on the host otherwise
	}
	if device == "nvme" {
		c.applyNVMe(k, block)
	}
	c.fill(block+dsPin, plan[strategy.PinMemory] != "false") // the default is true since 0.19.6, and false before
}

// applyNVMe sets the folder, and keeps the pinned host buffers small: with the default sub-group
// of 1e9 elements they would take 16 GB for each rank.
func (c *deepspeedConfig) applyNVMe(k strategy.Knob, block string) {
	if path := c.d.At.NVMePath; path != "" {
		c.fill(block+dsNVMe, path)
	}
	c.fill(dsZero+".sub_group_size", int(1e8))
	c.fill(dsZero+".stage3_prefetch_bucket_size", int(2e7))
	c.fillLive()
	buffers := 4 // DeepSpeed's defaults, written out: they are pinned host memory
	if k == strategy.OffloadParam {
		buffers = 5
	}
	c.fill(block+".buffer_count", buffers)
	if c.has("aio") {
		return
	}
	threads := "intra_op_parallelism" // its name since 0.16.4
	if version, known := c.d.Original.Packages["deepspeed"]; known && format.CompareVersions(version, "0.16.4") < 0 {
		threads = "thread_count"
	}
	c.fill("aio.block_size", 1<<20)
	c.fill("aio.queue_depth", 8)
	c.fill("aio."+threads, 1)
	c.fill("aio.single_submit", false)
	c.fill("aio.overlap_events", true)
}

// applyPinning removes pinning from the offloaded states if the plan does.
func (c *deepspeedConfig) applyPinning(old, plan strategy.Plan) {
	if plan[strategy.PinMemory] == old[strategy.PinMemory] || plan[strategy.PinMemory] == "" {
		return
	}
	for _, block := range []string{dsOptimizer, dsParam} {
		if c.has(block + dsDevice) {
			c.set(block+dsPin, plan[strategy.PinMemory] == "true")
		}
	}
}

// newConfig is the name of a configuration until it is a file of the attempt.
const newConfig = "deepspeed.json"

// Created are the knobs that a new configuration adds.
var createdKnobs = []strategy.Knob{strategy.Sharding, strategy.OffloadOptimizer, strategy.OffloadParam}

// offer adds the values that a new configuration could have.
func offerConfig(d *format.Draft, plan strategy.Plan, ranges map[strategy.Knob]strategy.Range) {
	for _, k := range createdKnobs {
		knob, known := d.Recipe.Knobs[k]
		if !known || knob.Absent != "" || len(knob.Places) == 0 {
			continue
		}
		if d.At.Plain && d.Original.Devices > 1 {
			ranges[k] = strategy.Range{Absent: fmt.Sprintf(
				"the job is one process on %d GPUs, of which DeepSpeed would take one: start it with ranks", d.Original.Devices)}
			continue
		}
		values := format.Writable(k, d.Places(knob))
		if d.At.NVMePath == "" {
			values = withoutNVMe(values)
		}
		plan[k], ranges[k] = "none", strategy.Range{Values: values}
	}
}

// create makes the configuration of a plan that needs one. What the job has already, by another setting, is not
// created.
func createConfig(d *format.Draft, old, plan strategy.Plan) (made bool, err error) {
	needed := false
	for _, k := range createdKnobs {
		needed = needed || plan[k] != "none" && plan[k] != "" && plan[k] != old[k]
	}
	if !needed {
		return false, nil
	}
	if plan[strategy.Sharding] == "none" {
		return false, fmt.Errorf("offload: DeepSpeed offloads at ZeRO stages 1 to 3 only")
	}
	text, err := baseConfig(d.Recipe.Creation.Auto, plan)
	if err != nil {
		return false, err
	}
	if err := d.Add(newConfig, text, d.Recipe.Creation.Via); err != nil {
		return false, err
	}
	if d.At.Plain {
		joinAlone(d)
	}
	return true, d.Recipe.Knobs[strategy.Sharding].WriteAlso(d, plan[strategy.Sharding])
}

// joinAlone makes a process that no launcher has started the only rank of a group, which
// DeepSpeed needs (deepspeed.init_distributed); with port 0, rank 0 takes a free one.
func joinAlone(d *format.Draft) {
	for name, value := range map[string]string{"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1",
		"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0"} {
		d.SetVariable(name, value)
	}
}

// section is a JSON object that keeps the order of its keys.
type jsonObject []struct {
	key   string
	value any
}

// MarshalJSON writes the keys in order.
func (s jsonObject) MarshalJSON() ([]byte, error) {
	text := []byte{'{'}
	for i, field := range s {
		value, err := json.Marshal(field.value)
		if err != nil {
			return nil, err
		}
		if i > 0 {
			text = append(text, ',')
		}
		text = append(fmt.Appendf(text, "%q:", field.key), value...)
	}
	return append(text, '}'), nil
}

// liveParameters is the number of parameters that ZeRO-3 may keep gathered, and over which it
// waits for the next use before it releases one. DeepSpeed's default of 1e9 keeps a model of that
// size whole on each device, and shards nothing while it computes.
const liveParameters = 300_000_000

// baseConfig is a configuration with the stage of a plan; offload is added to it as to any other.
// Bucket sizes are in elements. DeepSpeed's own defaults of 5e8 take 1 GB each in bfloat16, twice
// that with overlap_comm.
func baseConfig(auto bool, plan strategy.Plan) ([]byte, error) {
	stage := map[strategy.Value]int{"zero1": 1, "zero2": 2, "zero3": 3}[plan[strategy.Sharding]]
	zero := jsonObject{
		{"stage", stage},
		{"contiguous_gradients", true},
		{"overlap_comm", true},
	}
	switch {
	case stage < 3:
		zero = append(zero, jsonObject{{"reduce_scatter", true}, {"reduce_bucket_size", 200_000_000},
			{"allgather_partitions", true}, {"allgather_bucket_size", 200_000_000}}...)
	case offloaded(plan[strategy.OffloadParam]):
		zero = append(zero, jsonObject{{"reduce_bucket_size", 20_000_000}, {"stage3_prefetch_bucket_size", 20_000_000}}...)
	default:
		zero = append(zero, jsonObject{{"reduce_bucket_size", 50_000_000}, {"stage3_prefetch_bucket_size", 50_000_000}}...)
	}
	if stage == 3 {
		zero = append(zero, jsonObject{{"stage3_max_live_parameters", liveParameters},
			{"stage3_max_reuse_distance", liveParameters}}...)
		zero = append(zero, jsonObject{{"stage3_param_persistence_threshold", 100_000},
			{"stage3_gather_16bit_weights_on_model_save", true}}...)
	}
	config := jsonObject{{dsUntested, true}, {dsZero, zero}}
	if auto {
		config = append(jsonObject{
			{dsMicro, "auto"}, {dsAccum, "auto"}, {"gradient_clipping", "auto"},
			{"bf16", jsonObject{{"enabled", "auto"}}},
			{"fp16", jsonObject{{"enabled", "auto"}, {"loss_scale", 0}, {"initial_scale_power", 16},
				{"loss_scale_window", 1000}, {"hysteresis", 2}, {"min_loss_scale", 1}}},
		}, config...)
	} else if offloaded(plan[strategy.OffloadOptimizer]) {
		// The script's own optimizer stays: it runs on the host.
		config = append(config, jsonObject{{dsForceCPU, false}}...)
	}
	text, err := json.MarshalIndent(config, "", "  ")
	return append(text, '\n'), err
}

func withoutNVMe(values []strategy.Value) []strategy.Value {
	return slices.DeleteFunc(slices.Clone(values), func(v strategy.Value) bool { return v == "nvme" })
}

// trainingData is the position of training_data in deepspeed.initialize, counted from 0.
const trainingData = 4

// ownBatches is the reason why the configuration does not decide about the samples in a micro
// batch: the job makes its batches itself. DeepSpeed makes them if initialize is given
// training_data; a script that reads the configuration's number, or that calls deepspeed_io, also
// uses it. It is empty if the source is not known, or has no call.
func ownBatches(cmd format.Command) string {
	if cmd.Script == nil {
		return ""
	}
	if mentions(cmd, dsMicro, "deepspeed_io") {
		return ""
	}
	calls := cmd.Code.CallsOf("deepspeed.initialize")
	for _, call := range calls {
		data, given := call.Keyword["training_data"]
		if !given && len(call.Positional) > trainingData {
			data, given = call.Positional[trainingData], true
		}
		if given && !data.None {
			return ""
		}
	}
	if len(calls) == 0 {
		return ""
	}
	return "the script makes its batches itself: deepspeed.initialize is given no training_data"
}
