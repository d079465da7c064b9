package fits

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"

	"github.com/gpurun/gpurun/launcher/private"
	"github.com/gpurun/gpurun/strategy"
	"github.com/gpurun/gpurun/strategy/memory"
)

// version is that of the files. One of a later version is left alone: the gpurun that
// wrote it may still need it.
const version = 1

type content struct {
	Version int   `json:"v"`
	Fits    []Fit `json:"fits"` // the newest first
}

// errOther means a file of a later version of gpurun.
var errOther = errors.New("a newer gpurun wrote it")

// read reads a file of fits. No file is no fit; the error says why one is not used, and
// is a *Refused where it may not be.
func read(path string) ([]Fit, error) {
	f, err := private.OpenFile(path, os.O_RDONLY)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read what is remembered of the job: %w", err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, fmt.Errorf("read what is remembered of the job: %w", err)
	}
	if err := ownedOnly(path, info); err != nil {
		return nil, err
	}
	text, err := io.ReadAll(io.LimitReader(f, largestFile+1))
	if err != nil {
		return nil, fmt.Errorf("read what is remembered of the job: %w", err)
	}
	fits, err := decode(text)
	if err != nil {
		return nil, fmt.Errorf("%s is not used: %w", path, err)
	}
	return fits, nil
}

// decode takes in what encode wrote, and nothing that cannot be.
func decode(text []byte) ([]Fit, error) {
	if len(text) > largestFile {
		return nil, fmt.Errorf("it has more than %d bytes", largestFile)
	}
	var head struct {
		Version int `json:"v"`
	}
	if json.Unmarshal(text, &head) == nil && head.Version > version {
		return nil, errOther
	}
	var c content
	err := json.Unmarshal(text, &c)
	if err == nil && c.Version != version {
		err = fmt.Errorf("there is no version %d", c.Version)
	}
	if err != nil {
		return nil, fmt.Errorf("it is damaged: %w", err)
	}
	for _, f := range c.Fits {
		if err := f.check(); err != nil {
			return nil, fmt.Errorf("it is damaged: %w", err)
		}
	}
	return bounded(c.Fits), nil
}

// encode writes fits, as many of the newest as a file may hold.
func encode(fits []Fit) ([]byte, error) {
	for fits = bounded(fits); ; fits = fits[:len(fits)-1] {
		text, err := json.Marshal(content{Version: version, Fits: fits})
		if err != nil {
			return nil, fmt.Errorf("encode what is remembered: %w", err)
		}
		if len(text) < largestFile {
			return append(text, '\n'), nil
		}
		if len(fits) == 1 {
			return nil, fmt.Errorf("what is to be remembered of one job has more than %d bytes", largestFile)
		}
	}
}

// bounded leaves the newest of what is remembered.
func bounded(fits []Fit) []Fit {
	fits = fits[:min(len(fits), mostFits)]
	for i := range fits {
		fits[i].Tried = fits[i].newest()
		for k := range fits[i].Tried {
			t := &fits[i].Tried[k]
			t.Measured = t.Measured[:min(len(t.Measured), mostMeasured)]
		}
	}
	return fits
}

// newest are the newest plans of a fit. That of the job as written stays: without it
// nobody knows that another is needed.
func (f Fit) newest() []Tried {
	if len(f.Tried) <= mostTried {
		return f.Tried
	}
	kept := f.Tried[:mostTried:mostTried]
	if at := f.plan(f.Written); at >= mostTried {
		kept = append(kept[:mostTried-1:mostTried-1], f.Tried[at])
	}
	return kept
}

// check says what in a fit cannot be.
func (f Fit) check() error {
	if err := f.Written.Validate(); err != nil {
		return err
	}
	if f.DeviceBytes < 0 || f.DataParallel < 0 {
		return errors.New("a device or a number of ranks is negative")
	}
	for _, t := range f.Tried {
		if err := t.Plan.Validate(); err != nil {
			return err
		}
		if t.Room < 0 || t.Peak < 0 || t.Needed < 0 || t.Seconds < 0 || t.At.IsZero() {
			return fmt.Errorf("what is said of the plan %s cannot be", t.Plan)
		}
		for _, m := range t.Measured {
			if !possible(m) {
				return fmt.Errorf("what was measured with the plan %s cannot be", t.Plan)
			}
		}
	}
	return nil
}

// What is kept of one process is at most so much: as package probe takes it from the job.
const (
	mostNumber  = 1e15
	mostSeconds = 1e9
)

// possible reports whether a measurement can be one: bytes, counts and times are neither
// negative nor more than any machine has, and a fraction is one.
func possible(m memory.Measurement) bool {
	all := append(figures(m), m.Start, m.States, m.Evaluation, m.Peak, m.Reserved, m.Held, m.Split, m.Retries, m.Outside, m.Total, m.Host, m.Allocated, m.Requested,
		m.Allowed, m.Longest, int64(m.Batch), int64(m.Calls), int64(m.EvaluationBatch), int64(m.Steps))
	for _, n := range all {
		if n < 0 || n > mostNumber {
			return false
		}
	}
	for _, s := range []float64{m.StepSeconds, m.CallSeconds} {
		if s < 0 || s > mostSeconds {
			return false
		}
	}
	return m.Doubt >= 0 && m.Doubt <= 1
}

// figures are those of a measurement's plan, shape, steps, marks and model.
func figures(m memory.Measurement) (all []int64) {
	p := m.Plan
	for _, n := range append(slices.Clone(m.Shape), p.MicroBatch, p.Accumulation, p.DataParallel, p.Sequence, p.Evaluation) {
		all = append(all, int64(n))
	}
	for _, s := range []memory.StepMemory{m.First, m.Second, m.Longer} {
		all = append(all, s.Longest, s.Forward, s.ForwardPeak, s.BackwardPeak, s.Before, s.Micro, s.LaterPeak, s.OptimizerPeak, s.After)
	}
	for _, marks := range m.Marks {
		all = append(append(all, marks.Input, marks.After), marks.Bytes...)
	}
	if model := m.Model; model != nil {
		all = append(all, model.Parameters, model.Trainable, model.Buffers, model.Outside, model.Cast, model.CastOutside, model.Largest, model.Embedding, model.Vocabulary, model.Hidden)
		for _, b := range model.Blocks {
			all = append(all, int64(b.Count), b.Parameters)
		}
		for _, b := range model.Bytes {
			all = append(all, b)
		}
	}
	return all
}

// clone is a plan that shares nothing with another.
func clone(p strategy.Plan) strategy.Plan { return p.With(nil) }
