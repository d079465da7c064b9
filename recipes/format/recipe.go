// Package format is the language of recipes: the keys of a recipe file and of a
// [knobs] table, the kinds of place where a setting can be kept, and the draft of
// a command that those places read and change.
//
// A kind of place implements PlaceKind; no code outside asserts its type. README.md in the folder above explains every key.
package format

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/gpurun/gpurun/strategy"
)

// A Recipe is how one framework, or one user's script, spells the knobs.
type Recipe struct {
	Name  string
	Title string
	// Knobs holds the knobs that the recipe knows of. One that is missing here
	// cannot be turned.
	Knobs     map[strategy.Knob]Knob
	Detection Detection
	Grammar   ArgumentGrammar
	// Definitions are files among the framework's packages that define its arguments, next to
	// the job's own sources. It is nil where the framework itself brings the arguments.
	Definitions []string
	Resume      Resume
	Progress    ProgressLines
	// Verified is nil as long as the framework itself has read nothing that the
	// recipe wrote. make conformance writes it.
	Verified *Verified
	// Rules name the framework's own bindings between settings (rules.go of recipes).
	Rules []string
	// Creation is how a new DeepSpeed configuration is brought in; nil: it cannot be.
	Creation *Creation
	// Versions are those that the recipe is for; nil: all.
	Versions Versions
	// Model are numbers of ranks that share one copy of the model (tensor, pipeline,
	// context parallelism): only the ranks over their product see different samples.
	// The places of each are alternatives, as in Knob.
	Model [][]Place
	// OwnOOM are the framework's own ways of handling a lack of memory, switched
	// off wherever the command turns them on.
	OwnOOM []Setting
	// Relaunch are settings that every changed command needs.
	Relaunch []Setting
	// Checkpoint has the changes that a checkpoint does not survive.
	Checkpoint []CheckpointLimit
	// Proofs are where it shows that a change took effect.
	Proofs []Proof
	// Losses are what the framework does with the loss of a micro batch; the first that is
	// for the installed versions counts.
	Losses []LossRule
}

// Detection has the signs by which a command is recognised as the framework's.
type Detection struct {
	// Imports are names ("transformers.HfArgumentParser") or whole modules
	// ("deepspeed"); the script imports at least one of them.
	Imports []string
	// Unless are names or modules that rule the framework out.
	Unless []string
	// Args are arguments, of which the command has at least one.
	Args []string
	// Overrides are keys of words like train.batch=8; one counts as an argument.
	Overrides []string
	// Env are variables that the framework's launcher sets; one counts as an
	// argument.
	Env []string
	// Text are pieces of the script's source; one counts as an import.
	Text []string
	// Source are pieces of the script's source that need no other sign, all together.
	Source []string
	// Programs are modules, or ends of scripts' paths, that are the framework's
	// own: such a command needs no other sign.
	Programs []string
	// Keys are top-level keys, of which a configuration file that the command
	// names has at least one. A key counts as an argument.
	Keys []string
	// Over names recipes that give way where both match.
	Over []string
	// Not is why a command with the signs is none of the framework's after all,
	// empty where it is; nil: it is. A rule adds it.
	Not func(Command) string
}

// Resume is how a job continues from its newest checkpoint.
type Resume struct {
	// Latest is a glob of complete checkpoints. "{--output_dir}" in it is
	// the value of that argument, "{--output_dir|out}" with a default, "{name}"
	// for one of Values.
	Latest string
	// Args are put on the command line; "{latest}" in them is the checkpoint.
	Args []string
	// Also are settings with which the job resumes, beside Args: "{latest}" in a value is
	// the checkpoint.
	Also []Setting
	// Values are places whose text Latest and Args use, alternatives each.
	Values map[string][]Place
	// Defaults are the texts of Values that no place holds.
	Defaults map[string]string
	// Pointer is a file, written as Latest is, that names the newest checkpoint:
	// its whole text, trimmed. Pointed is the checkpoint that a text means which is
	// no path: "{pointer}" in it is the text, "{pointer:7}" with zeros in front.
	Pointer, Pointed string
	// Needs are globs of files, in a checkpoint that is a folder, without which it is
	// not complete: those that the framework writes last.
	Needs []string
	// Lost is a regular expression for the framework's line when it starts from scratch
	// although it was to resume.
	Lost string
	// Pin is put on the first command line already, where absent, so that every
	// attempt uses the same folder; "{job}" in it is a name of the run.
	Pin []string
	// Env are variables that every attempt gets, by which an experiment tracker continues
	// one run; "{job}" in them is a name of the run.
	Env map[string]string
	// Data is what becomes of the samples that were seen, where the job does not just continue
	// with the next; Shifts, what a changed knob does to it.
	Data   string
	Shifts map[strategy.Knob]string
	// Exact: it is known that a job continues with the next sample, whatever the
	// micro batch is by then.
	Exact bool
	// Own: the job's user, who knows its arguments, wrote it.
	Own bool
}

// ProgressLines are how a step shows in the job's output.
type ProgressLines struct {
	// Step is a regular expression whose first group is the number of the step.
	Step string
	// Nothing is a regular expression for the line by which a job reports that it did
	// nothing, whatever its exit code.
	Nothing string
}

// Verified is the result of comparing a recipe with the framework itself.
type Verified struct {
	// Version names packages and their versions: "transformers 5.23.0, …".
	Version string   `json:"version"`
	Rungs   []string `json:"rungs"`
	// Cases is the number of commands that the framework read.
	Cases int `json:"cases,omitempty"`
}

func newRecipe() Recipe { return Recipe{Knobs: map[strategy.Knob]Knob{}} }

// With returns the recipe in which the knobs of over replace its knobs, with
// over's resume and progress where over has them.
func (r Recipe) With(over Recipe) Recipe {
	r.Knobs = maps.Clone(r.Knobs)
	if r.Knobs == nil {
		r.Knobs = map[strategy.Knob]Knob{}
	}
	maps.Copy(r.Knobs, over.Knobs)
	if over.Resume.Latest != "" {
		env := r.Resume.Env // which only recipes have
		r.Resume = over.Resume
		r.Resume.Own, r.Resume.Env = true, env
	}
	if over.Progress.Step != "" {
		r.Progress.Step = over.Progress.Step
	}
	// The framework's proofs do not apply to a knob that the user describes.
	r.Proofs = slices.DeleteFunc(slices.Clone(r.Proofs), func(p Proof) bool { _, own := over.Knobs[p.Knob]; return own })
	return r
}

// Places are all places that the recipe looks at.
func (r Recipe) Places() []Place {
	all := slices.Concat(r.Model...)
	settings := slices.Concat(r.OwnOOM, r.Relaunch)
	for _, knob := range r.Knobs {
		all = append(append(all, knob.Places...), knob.Scales...)
		if knob.Global != nil {
			all = append(all, knob.Global.Places...)
		}
		for _, c := range knob.Unless {
			all = append(all, c.Place)
		}
		settings = append(settings, knob.Also...)
	}
	for _, l := range r.Losses {
		for _, c := range l.Unless {
			all = append(all, c.Place)
		}
	}
	for _, places := range r.Resume.Values {
		all = append(all, places...)
	}
	for _, s := range settings {
		all = append(all, s.Place)
	}
	return slices.DeleteFunc(all, func(p Place) bool { return p.PlaceKind == nil })
}

// FilesNamed lists the configuration files, as written, that must be in cmd.Files
// before the recipe reads the command. A file can name another one: call it again once
// they are loaded, until nothing new is listed. A file that does not exist is
// omitted, and reading reports it where it matters.
func (r Recipe) FilesNamed(cmd Command) []string {
	d := NewDraft(r, cmd)
	names := map[string]bool{}
	for _, file := range d.Files() {
		names[file] = true
	}
	for _, p := range r.Places() {
		for _, file := range p.Files(d) {
			names[file] = true
		}
	}
	return slices.Sorted(maps.Keys(names))
}

// Under is the option that the recipe's overrides follow, empty for none.
func (r Recipe) Under() string {
	for _, p := range r.Places() {
		if o, ok := p.PlaceKind.(interface{ leader() string }); ok && o.leader() != "" {
			return o.leader()
		}
	}
	return ""
}

// A Proof is where it shows which value of a knob the framework really uses: in
// a line of the job's output, or in a file that the framework writes.
type Proof struct {
	Knob strategy.Knob
	// Line matches a line; its first group is the value. Nil: the proof is a file.
	Line *regexp.Regexp
	// File is a glob, written as Resume.Latest is, and Path a key in what it matches.
	File, Path string
	// Words are the framework's words for the knob's values; nil: as in the plan.
	Words map[strategy.Value][]any
}

// Value understands what a proof shows; false where that is nothing, such as a
// word that the recipe does not know.
func (p Proof) Value(word any) (strategy.Value, bool) {
	text := fmt.Sprint(word)
	if p.Knob.Whole() {
		word = strings.ReplaceAll(text, ",", "") // 1,024
	}
	v, err := Place{Words: p.Words}.Understand(p.Knob, word)
	return v, err == nil
}

// A CheckpointLimit has the values of a knob between which a checkpoint survives a change.
type CheckpointLimit struct {
	Knob strategy.Knob
	// Families are sets of values; inside one, the checkpoint can be loaded. None:
	// no change of the knob can be.
	Families [][]strategy.Value
	Reason   string
}

// A Rule binds settings of one framework together, in a way that a recipe file cannot
// describe. Recipe files name their rules.
type Rule struct {
	// Shape completes a recipe that was read.
	Shape func(r *Recipe)
	// Read completes what was read from the places of the single knobs.
	Read func(d *Draft, plan strategy.Plan, ranges map[strategy.Knob]strategy.Range) error
	// Apply completes what was set at them; plan holds every knob.
	Apply func(d *Draft, old, plan strategy.Plan) error
	// Checkpoint edits files of a checkpoint, by their name in it, that hold
	// settings.
	Checkpoint map[string]func(text []byte, plan strategy.Plan) ([]byte, error)
}

// LeaveBatch keeps the micro batch and the accumulation from being turned.
func LeaveBatch(ranges map[strategy.Knob]strategy.Range, reason string) {
	ranges[strategy.MicroBatchSize], ranges[strategy.GradientAccumulationSteps] = strategy.Range{Absent: reason}, strategy.Range{Absent: reason}
}

// Rules are rules by the names that recipe files use.
type Rules map[string]Rule

// An ArgumentGrammar is how the framework reads its command line. A recipe names it by the
// library that does the reading.
type ArgumentGrammar struct {
	// Dashes: "--batch-size" and "--batch_size" are the same argument.
	Dashes bool
	// Booleans: a flag may be followed by any of argparse users' truth words
	// (yes, no, 1, 0 …), not only by true or false.
	Booleans bool
	// Abbreviations: an argument may be cut short where that is unambiguous.
	Abbreviations bool
	// File: one JSON or YAML file as the only argument holds all arguments by
	// name, without their dashes.
	File bool
	// Overrides: words key=value may follow that file, and are stronger.
	Overrides bool
	// Equals: an argument is given as one word, --x=8.
	Equals bool
	// Pairs: overrides are two words, KEY VALUE, behind all options.
	Pairs bool
}

// parsers are the ways of reading a command line, by the names that recipes use.
var parsers = map[string]ArgumentGrammar{
	"argparse": {Abbreviations: true},
	// argparse, and behind its options pairs of words for a configuration of yacs.
	"yacs": {Abbreviations: true, Pairs: true},
	// click, tyro, and scripts of whose parser nothing is known.
	"dashes": {Dashes: true},
	// jsonargparse, and what else splits words at an equals sign only.
	"equals": {Equals: true},
	// https://github.com/huggingface/transformers/blob/main/src/transformers/hf_argparser.py
	"HfArgumentParser": {Dashes: true, Booleans: true, Abbreviations: true, File: true},
	// Descendants of it: TRL and ms-swift read files in other ways,
	// LLaMA-Factory takes words a=b behind the file.
	"TrlParser":    {Dashes: true, Booleans: true, Abbreviations: true},
	"LLaMAFactory": {Dashes: true, Booleans: true, Abbreviations: true, File: true, Overrides: true},
}

// parserNames lists the parsers.
func parserNames() []string { return slices.Sorted(maps.Keys(parsers)) }

// A LossRule is what a framework does with the loss when a step has more micro batches.
type LossRule struct {
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

// LossOf is the recipe's entry for the loss of a command; zero where it has none.
func (r Recipe) LossOf(cmd Command) LossRule {
	d := NewDraft(r, cmd)
	for _, l := range r.Losses {
		here := l.Source == nil || slices.ContainsFunc(l.Source, func(piece string) bool { return bytes.Contains(cmd.Script, []byte(piece)) })
		if !here || l.Versions.Outside(cmd.Packages) != "" {
			continue
		}
		for _, c := range l.Unless {
			if c.Holds(d, nil) {
				return LossRule{Class: LossAverage, Reason: c.Reason}
			}
		}
		return l
	}
	return LossRule{}
}

// Computed reports whether the job's own code may compute the loss.
func (l LossRule) Computed() bool { return l.Class == LossScript || l.Class == LossLibrary }

// Known is the training by the framework alone.
func (l LossRule) Known() strategy.Loss {
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
