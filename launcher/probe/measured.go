package probe

import (
	"encoding/json"
	"slices"

	"github.com/gpurun/gpurun/strategy/memory"
)

// Bounds of memory.json; said.go has more.
const (
	mostMarks      = 1024 // blocks of one list
	mostDimensions = 16   // of a tensor
	mostSeconds    = 1e9
)

// instants are those in which memory can run out.
var instants = []string{"load", "forward", "loss", "backward", "optimizer", "evaluation"}

// parseMeasured reads memory.json: what a process measured of its memory. A job can write
// anything there: figures out of bounds are cut, and anything else is ignored.
func parseMeasured(text []byte) (m memory.Measurement, ok bool) {
	if json.Unmarshal(text, &m) != nil || m.PID <= 0 {
		return memory.Measurement{}, false
	}
	m.Plan, m.Rank, m.Outside = memory.RankPlan{}, 0, 0 // the caller knows them
	m.Model = measuredModel(m.Model)
	for _, s := range []*string{&m.Autocast, &m.Optimizer} {
		*s = cut(*s)
	}
	if !slices.Contains(instants, m.Failed) {
		m.Failed, m.Allocated, m.Requested = "", 0, 0
	}
	for _, n := range []*int{&m.PID, &m.Batch, &m.Calls, &m.EvaluationBatch, &m.Steps} {
		*n = bounded(*n)
	}
	all := append(stepFigures(&m.First, &m.Second, &m.Longer), &m.Longest, &m.States, &m.Start, &m.Evaluation, &m.Peak, &m.Reserved, &m.Held,
		&m.Split, &m.Retries, &m.Total, &m.Host, &m.Allocated, &m.Requested, &m.Allowed)
	for _, n := range all {
		*n = figure(*n)
	}
	for _, s := range []*float64{&m.StepSeconds, &m.CallSeconds} {
		*s = min(max(*s, 0), mostSeconds)
	}
	m.Shape = m.Shape[:min(len(m.Shape), mostDimensions)]
	for i := range m.Shape {
		m.Shape[i] = bounded(m.Shape[i])
	}
	m.Marks = m.Marks[:min(len(m.Marks), mostBlocks)]
	for i := range m.Marks {
		boundMarks(&m.Marks[i])
	}
	return m, true
}

// stepFigures are all figures of steps.
func stepFigures(steps ...*memory.StepMemory) (all []*int64) {
	for _, s := range steps {
		all = append(all, &s.Longest, &s.Forward, &s.ForwardPeak, &s.BackwardPeak, &s.Before, &s.Micro, &s.LaterPeak, &s.OptimizerPeak, &s.After)
	}
	return all
}

func boundMarks(m *memory.Marks) {
	m.Path, m.Input, m.After = cut(m.Path), figure(m.Input), figure(m.After)
	m.Bytes = m.Bytes[:min(len(m.Bytes), mostMarks)]
	for i := range m.Bytes {
		m.Bytes[i] = figure(m.Bytes[i])
	}
}

func measuredModel(m *memory.TrainedModel) *memory.TrainedModel {
	if m == nil {
		return nil
	}
	for _, n := range []*int64{
		&m.Parameters, &m.Trainable, &m.Buffers, &m.Outside, &m.Cast, &m.CastOutside, &m.Largest, &m.Embedding, &m.Vocabulary, &m.Hidden,
	} {
		*n = figure(*n)
	}
	m.Class, m.Bytes = cut(m.Class), bytesByType(m.Bytes)
	m.Blocks = m.Blocks[:min(len(m.Blocks), mostBlocks)]
	for i := range m.Blocks {
		b := &m.Blocks[i]
		b.Path, b.Class, b.Count, b.Parameters = cut(b.Path), cut(b.Class), bounded(b.Count), figure(b.Parameters)
	}
	return m
}
