package recipes

import (
	"fmt"

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
		c.fail(fmt.Errorf("set %s to %s: DeepSpeed offloads parameters at ZeRO stage 3 only, and the plan has %s", k, device, stage))
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
