package memory

// A DeepSpeedEstimate is the result of DeepSpeed's estimators for the model's states
// (estimate_zero2_model_states_mem_needs and the one for stage 3, runtime/zero): bytes of one
// device, and of the host. They omit activations, buckets, the context and NCCL. Their
// documentation of stage 2 is older than the code: it has 4 and 16 bytes where the code has 2 and
// 18.
type DeepSpeedEstimate struct {
	Device int64 `json:"device_bytes"`
	Host   int64 `json:"host_bytes"`
}

// hostSlack is their additional_buffer_factor: the ratio of the host memory to the bytes that are
// moved there.
const hostSlack = 1.5

// deepSpeedEstimate is for Adam, all ranks on one node, and models that are first made whole on
// the host (zero_init off). Stage 1, for which there is no estimator, counts as stage 2.
func deepSpeedEstimate(a Architecture, p RankPlan) DeepSpeedEstimate {
	if stage(p) == 3 {
		return estimateZero3(a.Parameters, a.largest(), p.DataParallel, elsewhere(p.OffloadOptimizer), elsewhere(p.OffloadParam), false)
	}
	return estimateZero2(a.Parameters, p.DataParallel, elsewhere(p.OffloadOptimizer))
}

// estimateZero2 is DeepSpeed's formula for stage 2 on one node of n GPUs.
func estimateZero2(parameters int64, n int, offload bool) DeepSpeedEstimate {
	all, gpus := float64(parameters), float64(n)
	if offload {
		return DeepSpeedEstimate{Device: ceil(2 * all), Host: ceil(all * max(4*gpus, 16) * hostSlack)}
	}
	return DeepSpeedEstimate{Device: ceil(2*all + 18*all/gpus), Host: ceil(all * 4 * gpus * hostSlack)}
}

// estimateZero3 is DeepSpeed's formula for stage 3 on one node of n GPUs; largest is the number
// of parameters of the largest layer. zeroInit: the model is made in shards.
func estimateZero3(parameters, largest int64, n int, optimizer, param, zeroInit bool) DeepSpeedEstimate {
	all, layer, gpus := float64(parameters), 4*float64(largest), float64(n)
	device, host := layer+18*all/gpus, 0.0
	switch {
	case optimizer && param:
		device, host = layer, 18.0
	case optimizer:
		device, host = layer+2*all/gpus, 16.0
	case zeroInit:
		return DeepSpeedEstimate{Device: ceil(device), Host: ceil(layer * gpus * hostSlack)}
	}
	if !zeroInit {
		host = max(host, 4*gpus)
	}
	return DeepSpeedEstimate{Device: ceil(device), Host: ceil(host * all * hostSlack)}
}

// hostBytes is the need of all ranks together for their host's memory, by DeepSpeed's estimator if
// there is one, and for NVMe. loading: it is
// needed at the start only, when each rank makes the weights on the host before they go to the
// device.
func hostBytes(a Architecture, p RankPlan) (host, nvme int64, loading bool) {
	kept := int64(0)
	if p.OffloadActivations != "none" {
		kept = ceil(float64(a.Layers) * pinned(hidden(a, p)*float64(p.MicroBatch)) * float64(p.DataParallel))
	}
	if !elsewhere(p.OffloadOptimizer) && !elsewhere(p.OffloadParam) {
		each := RateOf(p).Weights
		if p.DeepSpeed { // its master copy is made of fp32 weights, unless the model is made in shards
			each = 4
		}
		return max(kept, share(a.Parameters, each, 1)*int64(p.DataParallel)), 0, kept == 0
	}
	st, ranks := statesOf(a, p), float64(p.DataParallel)
	host = deepSpeedEstimate(a, p).Host
	if p.Sharding == "fsdp" || st.nvme > 0 {
		host = ceil(max(st.host, st.pinned) * ranks)
	}
	return host + kept, ceil(st.nvme * ranks), false
}
