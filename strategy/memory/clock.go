package memory

import (
	"math"
	"strings"
)

// A stepClock is the time of a mode's micro batch: floor seconds if launching kernels bounds it,
// each seconds per sample if computing does, and the update that a step adds. again is the factor
// of a launch if gradients are added to existing ones. launched: floor follows from measured launches;
// timed: the times do from measured steps.
type stepClock struct {
	floor, each, update, again float64
	launched, timed            bool
}

// step is the time of an optimizer step in seconds. The fourth powers fit the transition between
// the two bounds (landscape: a line is 14 % off at half the batch).
func (c stepClock) step(m, accumulation float64) float64 {
	floor := c.floor
	if accumulation > 1 {
		floor *= c.again
	}
	x, y := floor*floor, c.each*m*c.each*m
	return accumulation*math.Sqrt(math.Sqrt(x*x+y*y)) + c.update
}

const (
	// launchBlock is seconds a block, forward and backward, on a current host (landscape: .9–1.5
	// ms for a transformer's, .5 ms for a ResNet's).
	launchBlock            = .0011
	launchConvolution      = .00055
	launchCheckpointing    = 2.05 // landscape; 2.8 in a convolutional net
	launchCheckpointConv   = 2.8
	launchAgain            = 2.0  // landscape: 1.3–2.2 if launches bound the step, else 1
	computeCheckpointing   = 1.30 // landscape; published 1.25–1.33
	computeSelective       = 1.10
	launchAutocast         = 1.3
	launchBackward         = 1.3  // of a forward's (H100 rows: .9–1.8)
	launchCold             = 0.55 // of a cold forward's (H100 rows: .3–.8)
	launchAdd              = 1.05 // of a launch if gradients are added to existing ones, if launches were measured
	operationsFull         = 1.15 // of a card's speed below, without the time for activations (landscape, H100 rows)
	operationsHalf         = 1.8
	activationPasses       = 11   // times that a step reads or writes its activations (landscape, H100 rows)
	offloadedOptimizer     = 1.0  // seconds for 1e9 parameters: CPU Adam, .55–1.25 published
	offloadedNVMe          = 4.0  // the same from one fast disk
	hostLink               = 20e9 // bytes a second, PCIe in practice
	offloadedActivationsBy = 1.25 // published 1.02–1.35
)

// speeds are operations per second that training reaches in fp32 and in 16 bit, and bytes per
// second of memory, by a part of the device's name: about half of the vendors' figures.
var speeds = []struct {
	name               string
	full, half, memory float64
}{
	{"H200", 47e12, 360e12, 3e12}, {"H100", 45e12, 330e12, 2.3e12}, {"B200", 50e12, 600e12, 5e12},
	{"A100", 15e12, 150e12, 1.4e12}, {"A800", 15e12, 150e12, 1.4e12}, {"V100", 12e12, 50e12, .7e12},
	{"L40", 40e12, 120e12, .7e12},
	{"4090", 40e12, 100e12, .8e12}, {"3090", 20e12, 50e12, .7e12}, {"A10", 15e12, 50e12, .45e12},
	{"L4", 12e12, 45e12, .25e12}, {"T4", 4e12, 20e12, .25e12},
}

// clock estimates a mode's times by the launches that were measured, by the model's size and the device, and fits
// them to the measured steps. Only the order of plans depends on it.
func (f *Predictor) clock(mode RankPlan, s *modePeaks) stepClock {
	c := f.believed(mode, s)
	var floor, each, update, n float64
	for _, t := range f.timings {
		own := f.believed(modeOf(t.plan), f.timed(t.plan, s))
		seen := own.fitted(t)
		if seen.floor <= 0 || seen.each <= 0 {
			continue
		}
		w := 1.
		if modeOf(t.plan) == mode {
			w = 100
		}
		floor, each, update = floor+w*math.Log(seen.floor/own.floor), each+w*math.Log(seen.each/own.each), update+w*math.Log(
			seen.update/own.update)
		n += w
	}
	if n > 0 {
		c.floor, c.each, c.update = c.floor*math.Exp(floor/n), c.each*math.Exp(each/n), c.update*math.Exp(update/n)
		c.timed = true
	}
	return c
}

// fitted returns a clock that shows the measured time of a step. If launches were measured, the rest of the time is the
// device's; else all times have the same factor.
func (c stepClock) fitted(t timing) stepClock {
	m, n := float64(t.plan.MicroBatch), float64(max(t.plan.Accumulation, 1))
	whole := c.step(m, n)
	if m <= 0 || whole <= 0 || c.update <= 0 {
		return stepClock{}
	}
	if c.launched {
		call := t.seconds/n - c.update/n
		launch := c.floor
		if n > 1 {
			launch *= c.again
		}
		if rest := math.Pow(call, 4) - math.Pow(launch, 4); call > 0 && rest > 0 {
			c.each = math.Sqrt(math.Sqrt(rest)) / m
			return c
		}
		// The launches took less than was measured of them.
		c.each /= 2
		whole = c.step(m, n)
	}
	r := t.seconds / whole
	c.floor, c.each, c.update = c.floor*r, c.each*r, c.update*r
	return c
}

// timed is the shape of a plan that was timed; s if that is its mode.
func (f *Predictor) timed(p RankPlan, s *modePeaks) *modePeaks {
	if modeOf(p) == s.mode {
		return s
	}
	other := &modePeaks{mode: modeOf(p), states: f.states(modeOf(p))}
	f.activations(other)
	return other
}

// believed is a mode's clock before anything was measured.
func (f *Predictor) believed(mode RankPlan, s *modePeaks) stepClock {
	speed := speeds[0]
	speed.full, speed.half, speed.memory = 20e12, 120e12, 1e12 // a card that is not listed
	for _, v := range speeds {
		if strings.Contains(f.device.Name, v.name) {
			speed = v
			break
		}
	}
	if f.device.CPU {
		speed.full, speed.half, speed.memory = 2e11, 2e11, 2e10
	}
	blocks := 0.
	for _, b := range f.model.Blocks {
		blocks += float64(b.Count)
	}
	c := stepClock{floor: launchBlock * math.Max(blocks, 4), again: launchAgain}
	checkpointing := launchCheckpointing
	kind, rate := kindOf(mode), speed.full*operationsFull
	if kind != "fp32" {
		rate = speed.half * operationsHalf
	}
	if kind == "autocast" {
		c.floor = c.floor * launchAutocast
	}
	if f.model.Convolutional {
		c.floor, checkpointing = launchConvolution*math.Max(blocks, 8), launchCheckpointConv
		c.each = f.freely(s) * activationPasses / speed.memory
	} else {
		// 6 operations for each parameter and token, and the attention's (llm-foundry's count).
		n := math.Max(f.tokens(mode), 1)
		c.each = (6*float64(f.model.Parameters)+12*blocks*float64(f.model.Hidden)*n)*n/rate +
			activationPasses*(f.freely(s)+headHeld*f.logits(mode))/speed.memory
	}
	if floor, known := f.launched(mode, checkpointing); known {
		c.floor, c.again, c.launched = floor, launchAdd, true
	} else if mode.Checkpointing == "full" {
		c.floor *= checkpointing
	}
	forwards := c.each // a third of it is the forward
	switch mode.Checkpointing {
	case "full":
		c.each *= computeCheckpointing
	case "selective":
		c.each *= computeSelective
	}
	if mode.OffloadActivations == "cpu" {
		c.each *= offloadedActivationsBy
	}
	if mode.ForwardParts > 1 { // a forward more; each part is launched, and adds its gradients to a sum
		c.each += forwards / 3
		c.floor *= float64(mode.ForwardParts) * (1./3 + c.again)
	}
	c.update = 28 * float64(f.model.Trainable) / (1.3 * speed.memory) // Adam reads and writes 28 bytes a parameter
	f.moved(mode, s, &c)
	return c
}

// launched is the measured time of the launches of a micro batch in a mode, by the nearest of the measured modes, on
// the slowest rank. checkpointing is the factor of full checkpointing.
func (f *Predictor) launched(mode RankPlan, checkpointing float64) (floor float64, known bool) {
	least := math.Inf(1)
	for _, l := range f.launches {
		far := given(kindOf(l.plan) != kindOf(mode)) + given(l.plan.Checkpointing != mode.Checkpointing) + 4*given(l.AtMost)
		if far > least {
			continue
		}
		if far < least {
			least, floor = far, 0
		}
		floor, known = max(floor, l.as(mode, checkpointing)), true
	}
	return floor, known
}

// as is the time of the launches in another mode.
func (l launching) as(mode RankPlan, checkpointing float64) float64 {
	forward, backward := l.Forward, l.Backward
	if l.AtMost {
		forward *= launchCold
	}
	if backward == 0 {
		backward = launchBackward * forward
	}
	seconds := forward + backward
	times := func(from, to bool, factor float64) {
		switch {
		case to && !from:
			seconds *= factor
		case from && !to:
			seconds /= factor
		}
	}
	times(l.plan.Checkpointing == "full", mode.Checkpointing == "full", checkpointing)
	times(kindOf(l.plan) == "autocast", kindOf(mode) == "autocast", launchAutocast)
	return seconds
}

// freely is the bytes that a sample's blocks hold without checkpointing.
func (f *Predictor) freely(s *modePeaks) float64 {
	if s.mode.Checkpointing != "full" || len(s.windows) == 0 {
		return s.blocks
	}
	kinds, sum := f.lists(s.mode), 0.
	for _, l := range kinds.lists {
		sum += l.count * l.each
	}
	return sum
}

// moved adds the cost of sharding and offload: gathering over the ranks, the link to the host,
// the host's or the disk's part in the update. The figures are published ones.
func (f *Predictor) moved(mode RankPlan, s *modePeaks, c *stepClock) {
	n, all := float64(max(mode.DataParallel, 1)), float64(f.model.Parameters)
	w := computes(mode)
	if stage(mode) == 3 && n > 1 {
		c.each *= 1.05
		c.floor += 3 * all * w / 200e9
	}
	if stage(mode) == 2 && n > 1 {
		c.floor += all * w / 200e9
	}
	if elsewhere(mode.OffloadParam) {
		c.floor += 2 * all * w / n / hostLink
	}
	switch mode.OffloadOptimizer {
	case StatesOnHost: // both ways at once
		c.update = s.states.host / hostLink
	case "cpu":
		c.update = all/n*2*w/hostLink + offloadedOptimizer*all/n/1e9
	case "nvme":
		c.update = all/n*2*w/hostLink + (offloadedOptimizer+offloadedNVMe)*all/n/1e9
	}
}
