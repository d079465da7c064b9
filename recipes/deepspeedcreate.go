package recipes

import (
	"encoding/json"
	"fmt"
	"slices"

	"github.com/gpurun/gpurun/recipes/format"
	"github.com/gpurun/gpurun/strategy"
)

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
			ranges[k] = strategy.Range{Absent: fmt.Sprintf("the job is one process on %d GPUs, of which DeepSpeed would take one: start it with ranks", d.Original.Devices)}
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
	for name, value := range map[string]string{"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0"} {
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
		zero = append(zero, jsonObject{{"reduce_scatter", true}, {"reduce_bucket_size", 200_000_000}, {"allgather_partitions", true}, {"allgather_bucket_size", 200_000_000}}...)
	case offloaded(plan[strategy.OffloadParam]):
		zero = append(zero, jsonObject{{"reduce_bucket_size", 20_000_000}, {"stage3_prefetch_bucket_size", 20_000_000}}...)
	default:
		zero = append(zero, jsonObject{{"reduce_bucket_size", 50_000_000}, {"stage3_prefetch_bucket_size", 50_000_000}}...)
	}
	if stage == 3 {
		zero = append(zero, jsonObject{{"stage3_max_live_parameters", liveParameters}, {"stage3_max_reuse_distance", liveParameters}}...)
		zero = append(zero, jsonObject{{"stage3_param_persistence_threshold", 100_000}, {"stage3_gather_16bit_weights_on_model_save", true}}...)
	}
	config := jsonObject{{dsUntested, true}, {dsZero, zero}}
	if auto {
		config = append(jsonObject{
			{dsMicro, "auto"}, {dsAccum, "auto"}, {"gradient_clipping", "auto"},
			{"bf16", jsonObject{{"enabled", "auto"}}},
			{"fp16", jsonObject{{"enabled", "auto"}, {"loss_scale", 0}, {"initial_scale_power", 16}, {"loss_scale_window", 1000}, {"hysteresis", 2}, {"min_loss_scale", 1}}},
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
