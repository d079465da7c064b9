package format

import (
	"bytes"
	"cmp"
	"slices"

	"github.com/gpurun/gpurun/strategy"
)

// A Loss is what a framework does with the loss when a step has more micro batches.
type Loss struct {
	Class  string
	Reason string
	// Versions are those of which it is so; nil: all.
	Versions Versions
	// Source are pieces of the script's source, of which it has one; nil: any script.
	Source []string
	// Unless are settings with which micro batches are equal on average only.
	Unless []Condition
}

// The classes of a recipe's loss. Exact: the framework's own loss is a mean that it divides
// by the accumulation. Weighted: it weights micro batches by their tokens or samples.
// Average: it does neither. Features: it compares the samples of all micro batches.
// Script, Library: it divides a loss that the job's own code computes; of Library one of
// its own models computes it where that code does not.
const (
	LossExact    = "exact"
	LossWeighted = "weighted"
	LossAverage  = "average"
	LossFeatures = "features"
	LossScript   = "script"
	LossLibrary  = "library"
)

var lossClasses = []string{LossExact, LossWeighted, LossAverage, LossFeatures, LossScript, LossLibrary}

// LossOf is what the recipe says of the loss of a command; zero where it says nothing.
func (r Recipe) LossOf(cmd Command) Loss {
	d := NewDraft(r, cmd)
	for _, l := range r.Losses {
		here := l.Source == nil || slices.ContainsFunc(l.Source, func(piece string) bool { return bytes.Contains(cmd.Script, []byte(piece)) })
		if !here || l.Versions.Outside(cmd.Packages) != "" {
			continue
		}
		for _, c := range l.Unless {
			if c.Holds(d, nil) {
				return Loss{Class: LossAverage, Reason: c.Reason}
			}
		}
		return l
	}
	return Loss{}
}

// Computed reports whether the job's own code may compute the loss.
func (l Loss) Computed() bool { return l.Class == LossScript || l.Class == LossLibrary }

// Known is what the framework alone says of the training.
func (l Loss) Known() strategy.Loss {
	switch l.Class {
	case LossExact, LossLibrary:
		return strategy.Loss{Class: strategy.Exact, Reason: l.Reason}
	case LossWeighted:
		return strategy.Loss{Class: strategy.Exact, Reason: l.Reason, Weighted: true}
	case LossScript:
		return strategy.Loss{Class: strategy.Average, Reason: "the loss was not recognised"}
	}
	return strategy.Loss{Class: strategy.Average, Reason: cmp.Or(l.Reason, "the recipe does not say how the framework divides the loss")}
}
