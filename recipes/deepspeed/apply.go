package deepspeed

import (
	"fmt"

	"github.com/gpurun/gpurun/recipes/format"
	"github.com/gpurun/gpurun/strategy"
)

func apply(d *format.Draft, old, plan strategy.Plan) error {
	c, named := dsConfigOf(d)
	if !named && d.Recipe.Creation != nil {
		made, err := create(d, plan)
		if !made || err != nil {
			return err
		}
		c, _ = dsConfigOf(d)
		if err := c.setDevices(plan); err != nil {
			return err
		}
	} else if !named {
		return nil
	}
	if err := c.applyBatch(old, plan); err != nil {
		return err
	}
	if err := c.applySharding(old, plan); err != nil {
		return err
	}
	if err := c.applyOffload(old, plan, strategy.OffloadOptimizer, dsOptimizer); err != nil {
		return err
	}
	if err := c.applyOffload(old, plan, strategy.OffloadParam, dsParam); err != nil {
		return err
	}
	return c.applyPinning(old, plan)
}

// setDevices says what a new configuration offloads.
func (c dsConfig) setDevices(plan strategy.Plan) error {
	for _, offload := range []struct {
		knob  strategy.Knob
		block string
	}{{strategy.OffloadOptimizer, dsOptimizer}, {strategy.OffloadParam, dsParam}} {
		if !offloaded(plan[offload.knob]) {
			continue
		}
		if err := c.place.Change(c.d, offload.block+dsDevice, string(plan[offload.knob])); err != nil {
			return err
		}
	}
	return nil
}

// applyBatch keeps the three numbers consistent: those that are written out hold
// what the plan says, and as few as possible are added.
func (c dsConfig) applyBatch(old, plan strategy.Plan) error {
	micro, accum := plan[strategy.MicroBatchSize], plan[strategy.GradientAccumulationSteps]
	if micro == old[strategy.MicroBatchSize] && accum == old[strategy.GradientAccumulationSteps] {
		return nil
	}
	m, _ := micro.Number()
	a, _ := accum.Number()
	b, err := c.batch()
	if err != nil {
		return err
	}
	global := m * a * c.d.At.Sharing()
	if b.train > 0 && b.train != global {
		if err := c.place.Change(c.d, dsTrain, global); err != nil {
			return err
		}
	}
	if !c.alone {
		if err := c.agree(b, m, a); err != nil {
			return err
		}
		// Accelerate takes a missing accumulation as 1, whatever the arguments say.
		if err := c.fill(dsMicro, "auto"); err != nil {
			return err
		}
		return c.fill(dsAccum, "auto")
	}
	switch {
	case b.micro == 0 && b.accum == 0 && a != 1:
		err = c.fill(dsMicro, m)
	case b.train == 0 && b.accum == 0 && a != 1:
		err = c.fill(dsAccum, a)
	}
	if err != nil {
		return err
	}
	return c.checkBatch(m, a)
}

// agree changes what the configuration repeats of the arguments.
func (c dsConfig) agree(b batch, micro, accum int) error {
	for _, key := range []struct {
		name      string
		old, next int
	}{{dsMicro, b.micro, micro}, {dsAccum, b.accum, accum}} {
		if key.old == 0 || key.old == key.next {
			continue
		}
		if err := c.place.Change(c.d, key.name, key.next); err != nil {
			return err
		}
	}
	return nil
}

// checkBatch reads the batch again as DeepSpeed will.
func (c dsConfig) checkBatch(micro, accum int) error {
	b, err := c.batch()
	if err != nil {
		return err
	}
	full, err := b.derived(c.d.At.Sharing())
	if err != nil {
		return fmt.Errorf("%s: %w", format.Shown(c.file), err)
	}
	if full.micro != micro || full.accum != accum {
		return fmt.Errorf("%s: DeepSpeed would derive micro batch %d and accumulation %d, not %d and %d",
			format.Shown(c.file), full.micro, full.accum, micro, accum)
	}
	return nil
}

// applySharding adds what a higher ZeRO stage needs.
func (c dsConfig) applySharding(old, plan strategy.Plan) error {
	from, to := old[strategy.Sharding], plan[strategy.Sharding]
	if from == to {
		return nil
	}
	if from == "none" && c.alone && !c.has(dsClientKey) {
		// ZeRO asserts that a script's own optimizer is one that it was tested with.
		if err := c.fill(dsUntested, true); err != nil {
			return err
		}
	}
	if to == "zero3" {
		// Without it a saved model holds no weights, only their shards.
		if err := c.fill(dsGather, true); err != nil {
			return err
		}
		return c.fillLive()
	}
	return nil
}

// fillLive bounds what ZeRO-3 keeps gathered.
func (c dsConfig) fillLive() error {
	for _, key := range []string{"stage3_max_live_parameters", "stage3_max_reuse_distance"} {
		if err := c.fill(dsZero+"."+key, liveParameters); err != nil {
			return err
		}
	}
	return nil
}

// applyOffload checks that the stage can offload, and completes the block.
func (c dsConfig) applyOffload(old, plan strategy.Plan, k strategy.Knob, block string) error {
	device, stage := plan[k], plan[strategy.Sharding]
	if !offloaded(device) {
		return nil
	}
	switch {
	case k == strategy.OffloadParam && stage != "zero3":
		return fmt.Errorf("set %s to %s: DeepSpeed offloads parameters at ZeRO stage 3 only, and the plan has %s", k, device, stage)
	case device == "nvme" && stage != "zero3":
		return fmt.Errorf("set %s to nvme: DeepSpeed offloads to NVMe at ZeRO stage 3 only, and the plan has %s", k, stage)
	case stage == "none":
		return fmt.Errorf("set %s to %s: DeepSpeed offloads at ZeRO stages 1 to 3 only", k, device)
	case device == old[k]:
		return nil
	}
	if k == strategy.OffloadOptimizer && c.alone && !offloaded(old[k]) && !c.has(dsClientKey) {
		// The engine refuses a script's own optimizer on the host otherwise.
		if err := c.fill(dsForceCPU, false); err != nil {
			return err
		}
	}
	if device == "nvme" {
		if err := c.applyNVMe(k, block); err != nil {
			return err
		}
	}
	// The default has been true since 0.19.6, and false before: say it.
	return c.fill(block+dsPin, plan[strategy.PinMemory] != "false")
}

// applyNVMe says where to, and keeps the pinned host buffers small: with the
// default sub-group of 1e9 elements they would take 16 GB for each rank.
func (c dsConfig) applyNVMe(k strategy.Knob, block string) error {
	if c.d.At.NVMePath != "" {
		if err := c.fill(block+dsNVMe, c.d.At.NVMePath); err != nil {
			return err
		}
	}
	for _, key := range []struct {
		name     string
		elements int
	}{
		{dsZero + ".sub_group_size", 1e8},
		{dsZero + ".stage3_prefetch_bucket_size", 2e7},
	} {
		if err := c.fill(key.name, key.elements); err != nil {
			return err
		}
	}
	if err := c.fillLive(); err != nil {
		return err
	}
	buffers := 4 // DeepSpeed's defaults, written out: they are pinned host memory
	if k == strategy.OffloadParam {
		buffers = 5
	}
	if err := c.fill(block+".buffer_count", buffers); err != nil {
		return err
	}
	return c.applyAIO()
}

// applyAIO writes out how the disk is read, under the names of the installed
// version: thread_count is intra_op_parallelism since 0.16.4.
func (c dsConfig) applyAIO() error {
	if c.has("aio") {
		return nil
	}
	threads := "intra_op_parallelism"
	if version, known := c.d.Original.Packages["deepspeed"]; known && format.CompareVersions(version, "0.16.4") < 0 {
		threads = "thread_count"
	}
	for _, key := range []struct {
		name  string
		value any
	}{{"block_size", 1 << 20}, {"queue_depth", 8}, {threads, 1}, {"single_submit", false}, {"overlap_events", true}} {
		if err := c.fill("aio."+key.name, key.value); err != nil {
			return err
		}
	}
	return nil
}

// applyPinning takes the pin out of what is offloaded where the plan does.
func (c dsConfig) applyPinning(old, plan strategy.Plan) error {
	if plan[strategy.PinMemory] == old[strategy.PinMemory] || plan[strategy.PinMemory] == "" {
		return nil
	}
	for _, block := range []string{dsOptimizer, dsParam} {
		if !c.has(block + dsDevice) {
			continue
		}
		if err := c.place.Change(c.d, block+dsPin, plan[strategy.PinMemory] == "true"); err != nil {
			return err
		}
	}
	return nil
}
