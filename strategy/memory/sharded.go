package memory

import "math"

// states are the bytes that a rank holds for any batch.
type states struct {
	// weights exist from the load on, optimizer from the first step on.
	weights, optimizer float64
	// gradients exist at the end of the backward, under ZeRO-3 always; held is the part that stays
	// while another micro batch of the step runs.
	gradients, held float64
	// buffer exists from the load on, again from the second step on.
	buffer, again float64
	// early is the part of the optimizer's bytes that exists before the first call, forming the
	// bytes that stay in a bucket while another micro batch runs.
	early, forming float64
	// Temporary bytes: while the model is made ready, in a forward or backward, in a backward,
	// and in the optimizer's step.
	load, gather, bucket, step float64
	// ready is a buffer that exists from the backward's first gradient on.
	ready float64
	// Bytes outside the device; pinnedMore is the addition of a second micro batch.
	host, pinned, nvme, pinnedMore float64
	// sharded: the temporary bytes are DeepSpeed's or FSDP's defaults.
	sharded bool
}

// parameterCounts are the numbers of parameters of a model, of its largest parameter and block,
// and of the modules outside the blocks.
type parameterCounts struct{ all, trained, largest, block, outside float64 }

// on returns the states of one rank on its device, from those of the whole model: the table that
// estimates and predictions share. The plan's unknown settings are filled in.
func (s states) on(n parameterCounts, p RankPlan) states {
	s.held = s.gradients
	switch {
	case p.Sharding == "fsdp":
		s.fsdp(n, p)
	case p.DeepSpeed || stage(p) > 0:
		s.deepSpeed(n, p)
	case p.DataParallel > 1:
		// DistributedDataParallel makes its buckets at the start. It makes them again for the
		// second step, in the order of the gradients, and from then on holds as much once more
		// (measured on two H200s with torch 2.11: 8 bytes a parameter in fp32 when loaded, 20 in
		// the forward of the second step).
		s.buffer, s.again = s.gradients, s.gradients
	}
	return s
}

// fsdp divides the states. The source is torch 2.15's distributed/fsdp/_fully_shard: a block that
// is computed, its buffer of the all-gather and that of the next block are whole, in the dtype of
// the computation, as are the parameters outside the blocks and, in the backward, their gradients,
// which are reduced last. A block's gradients are whole once more in the reduction's buffer.
func (s *states) fsdp(n parameterCounts, p RankPlan) {
	ranks, compute := float64(p.DataParallel), width(p.Compute)
	s.gather = compute * (3*n.block + n.outside)
	if p.KeepGathered {
		s.gather = compute * n.all
	}
	s.ready, s.bucket = compute*n.outside, compute*2*n.block
	s.weights, s.gradients, s.held, s.optimizer, s.step = s.weights/ranks, s.gradients/ranks, s.held/ranks, s.optimizer/ranks, s.step/ranks
	s.sharded = true
	if elsewhere(p.OffloadParam) || elsewhere(p.OffloadOptimizer) { // all or nothing
		s.host, s.pinned = s.weights+s.gradients+s.optimizer, s.weights+s.gradients
		s.weights, s.gradients, s.held, s.optimizer, s.step = 0, 0, 0, 0, 0
	}
}

// deepSpeed divides the states by ZeRO's stage: the optimizer from stage 1 on, gradients from 2
// and weights from 3. DeepSpeed adds a master copy in fp32. The sources are DeepSpeed 0.19.8's
// runtime/zero/stage_1_and_2.py, stage3.py and partitioned_param_coordinator.py, and
// runtime/bf16_optimizer.py; the times and the bytes while the engine is made were measured on two
// H200s with torch 2.11 (testdata/README.md).
func (s *states) deepSpeed(n parameterCounts, p RankPlan) {
	r, ranks, cast := RateOf(p), float64(p.DataParallel), 4.0
	if r.Weights == 4 { // to() of the same dtype makes no copy
		cast = 0
	}
	if stage(p) == 0 {
		ranks = 1
	}
	own, w, full := n.trained/ranks, r.Weights, r.Weights*reduceBucket
	master := r.Master * own
	s.sharded = true
	s.optimizer = s.optimizer/ranks + master
	s.early, s.load = master, master // the moments come with the first step; the copy is cloned
	direct := s.step                 // without a master copy the job's optimizer steps the parameters
	s.step = (w + cast) * own        // the partition's gradients are made one tensor, and made fp32
	switch stage(p) {
	case 0:
		s.early, s.load, s.step = s.optimizer, (w+cast)*own, cast*own
		if master == 0 {
			s.step = direct
		}
	case 1:
		// Gradients are copied into one bucket, which is made with the first of them. Once it is
		// full, it is copied for the reduction. The bucket of the last micro batch stays.
		s.ready, s.bucket, s.forming = full, w*math.Min(n.trained, reduceBucket), full
	case 2:
		s.gradients /= ranks
		s.ready, s.bucket = full, w*math.Min(n.trained, reduceBucket)
	case 3:
		// The bucket, and a buffer for the partition's gradients, exist from the start.
		s.weights, s.gradients, s.buffer, s.load = s.weights/ranks, s.gradients/ranks, full, 0
		s.step = (w + cast) * math.Min(own, subGroup)
		if ranks > 1 || elsewhere(p.OffloadParam) {
			s.gather = w * math.Min(n.all, math.Max(liveParameters+prefetchBucket, n.largest))
		}
	}
	s.held = s.gradients
	s.offload(n, p, own, w)
}

// offload moves the optimizer and, at stage 3, the parameters to the host or to NVMe. own is the
// number of parameters of the rank's partition. The host's figures have DeepSpeed's own factor of
// 1.5 for buffers (estimate_zero3_model_states_mem_needs). The pinned bytes, NVMe's and those that
// leave the device were measured on two H200s with torch 2.11 and DeepSpeed 0.19.8.
func (s *states) offload(n parameterCounts, p RankPlan, own, w float64) {
	if elsewhere(p.OffloadOptimizer) {
		s.offloadOptimizer(n, p, own, w)
	}
	if !elsewhere(p.OffloadParam) || stage(p) < 3 {
		return
	}
	s.weights = 0
	if p.OffloadParam == "cpu" {
		s.host += hostSlack * w * own
		s.pinned += 2 * pinned(w*own) // flat, and each parameter's own, which is rounded by itself
		return
	}
	s.nvme += w * own
	s.host += 5*1e8*w + w*math.Min(own, 1e9) // five buffers, and max_in_cpu (DeepSpeed's defaults)
	s.pinned += 5 * 1e8 * w
}

// offloadOptimizer moves master copy, states and gradients. The gradients of a bucket go to the
// host after its reduction, those of stage 1 in the last micro batch of a step.
func (s *states) offloadOptimizer(n parameterCounts, p RankPlan, own, w float64) {
	moved := s.optimizer + 4*own
	s.optimizer, s.early, s.step = 0, 0, 0
	if stage(p) < 3 { // the weights are flattened
		s.load = w * n.all
	}
	if stage(p) == 1 || stage(p) == 2 { // from then on, a buffer for the largest parameter's gradient
		s.buffer = w * math.Min(n.largest, n.all)
		s.load -= s.buffer
		s.pinned = pinned(4*own) + pinned(s.buffer)
	}
	if stage(p) > 0 {
		s.gradients = 0
	}
	if stage(p) > 1 {
		s.held = 0
	}
	if p.OffloadOptimizer == "cpu" {
		s.host = hostSlack * moved
		s.pinned += pinned(4*own) + pinned(w*own)
		s.pinnedMore = pinned(w * own)
		return
	}
	// Four tensors of a sub-group are in asynchronous I/O's own pinned buffers, gradients and
	// weights in PyTorch's.
	group := 4 * math.Min(own, subGroup)
	s.nvme = moved
	s.pinned += 4*group + 2*pinned(group) + pinned(w*own)
	s.host = 4*group + 2*group + w*own
}

// elsewhere reports whether a part is held in another memory than the device's.
func elsewhere(to string) bool { return to == "cpu" || to == "nvme" }
