package memory

// buffered are the bytes on one device that are neither states nor activations, by instant.
// late is at the end of the backward.
type buffered struct{ load, forward, loss, backward, late, optimizer int64 }

// buffers are communication and copies, each times a factor.
func buffers(a Architecture, p RankPlan, factor float64) buffered {
	var b buffered
	switch {
	case p.Sharding == "fsdp":
		b = gatheredBlocks(a, p)
	case p.DeepSpeed || stage(p) > 0:
		b = zeroBuffers(a, p)
	case p.DataParallel > 1: // DDP's buckets hold all gradients once more, unless gradient_as_bucket_view is set; made anew for the second step, twice
		all := share(a.Parameters, RateOf(p).Gradients, 1)
		b = buffered{load: all, forward: 2 * all, loss: 2 * all, backward: 2 * all, late: 2 * all, optimizer: 2 * all}
	}
	if !p.DeepSpeed && p.OffloadOptimizer == "none" {
		w, _, _ := statesOf(a, p)
		b.optimizer += scaled(w, optimizerOf(p.Optimizer).moment)
	}
	return buffered{scaled(b.load, factor), scaled(b.forward, factor), scaled(b.loss, factor), scaled(b.backward, factor), scaled(b.late, factor), scaled(b.optimizer, factor)}
}

// zeroBuffers are DeepSpeed's. Stages 1 and 2 make a bucket for gradients with the first
// one and copy it when it is full; that of stage 1 stays for the next micro batch. Stage 3
// has its bucket from the start; its weights are gathered where they are divided or
// offloaded. A step flattens the shard's gradients and makes them fp32, in stage 3 for one
// sub-group after the other (stage_1_and_2.py, stage3.py; when each is held was measured on
// two H200s with torch 2.11 and DeepSpeed 0.19.8). Offloaded steps are the host's.
func zeroBuffers(a Architecture, p RankPlan) buffered {
	r, n := RateOf(p), p.DataParallel
	part := func(elements float64) int64 {
		return min(share(a.Parameters, r.Weights, 1), ceil(elements*r.Weights))
	}
	step := r.Gradients
	if p.Compute != "fp32" {
		step += 4
	}
	b, bucket := buffered{}, ceil(reduceBucket*r.Weights)
	switch stage(p) {
	case 0:
		b = buffered{load: share(a.Parameters, step, 1), optimizer: share(a.Parameters, step-r.Gradients, 1)}
	case 1, 2:
		b = buffered{load: share(a.Parameters, r.Master, n), backward: bucket, late: bucket + part(reduceBucket), optimizer: share(a.Parameters, step, n)}
		if stage(p) == 1 && p.Accumulation > 1 {
			b.forward, b.loss = bucket, bucket
		}
	case 3:
		held := bucket
		if n > 1 || p.OffloadParam != "none" {
			held += part(liveParameters + prefetchBucket)
		}
		b = buffered{load: bucket, forward: held, loss: held, backward: held, late: held}
		b.optimizer = bucket + min(share(a.Parameters, step, n), ceil(subGroup*step))
	}
	if p.OffloadOptimizer != "none" {
		b.load, b.optimizer = bucket, bucket
		if stage(p) < 3 { // a copy of the weights while it starts, a buffer for the largest gradient from then on
			one := min(share(a.largest(), r.Weights, 1), share(a.Parameters, r.Weights, 1))
			b.load, b.optimizer = share(a.Parameters, r.Weights, 1), one
			b.forward, b.loss, b.backward, b.late = b.forward+one, b.loss+one, b.backward+one, b.late+one
		}
	}
	return b
}

// gatheredBlocks are FSDP's: the block that is computed and two that are fetched ahead, whole
// and in the dtype of the computation; in the backward their gradients too, two at a time; and
// what is outside the blocks, which stays whole from the forward to the backward.
func gatheredBlocks(a Architecture, p RankPlan) buffered {
	each := width(p.Compute)
	root, block := share(a.outside(), each, 1), share(a.block(), each, 1)
	backward := root + 3*block + root + 2*block
	return buffered{forward: root + 3*block, loss: backward, backward: backward, late: backward}
}
