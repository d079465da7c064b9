// Package format is the language of recipes: the keys of a recipe file and of a [knobs] table,
// the kinds of place for a setting, and the draft of a command that those places read and change.
//
// A kind of place implements PlaceKind; only a kind asserts its own type. README.md in the folder
// above explains every key.
package format

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/gpurun/gpurun/launcher/lazy"
	"github.com/gpurun/gpurun/recipes/edit"
	"github.com/gpurun/gpurun/strategy"
)

// A Recipe describes how one framework, or one user's script, spells the knobs.
type Recipe struct {
	Name  string `toml:"name" missing:"a recipe needs a name"`
	Title string `toml:"title"`
	// Knobs has the knobs that the recipe supports. Others cannot be changed.
	Knobs     map[strategy.Knob]Knob `toml:"knobs"`
	Detection Detection              `toml:"detect"`
	Grammar   ArgumentGrammar        `toml:"parser"`
	// Definitions are files among the framework's packages that define its arguments, in addition
	// to the job's own sources. It is nil if the framework itself adds the arguments.
	Definitions []string      `toml:"arguments"`
	Resume      Resume        `toml:"resume"`
	Progress    ProgressLines `toml:"progress"`
	// Verified is nil until make conformance has run the framework itself on the recipe's
	// results.
	Verified *Verified
	// Rules name the framework's own dependencies between settings (rules.go of recipes).
	Rules []string `toml:"rules"`
	// Creation describes how a new DeepSpeed configuration is added; nil: it cannot be.
	Creation *Creation `toml:"deepspeed"`
	// Versions are those that the recipe is for; nil: all.
	Versions Versions `toml:"versions"`
	// Model are numbers of ranks that share one copy of the model (tensor, pipeline, context
	// parallelism). The number of ranks that see different samples is the number of ranks divided
	// by their product. The places of each are alternatives, as in Knob.
	Model [][]Place `toml:"parallel"`
	// OwnOOM are the framework's own ways of handling out-of-memory errors. They are switched off
	// if the command turns them on.
	OwnOOM []Setting `toml:"own_oom"`
	// Relaunch are settings that every changed command needs.
	Relaunch []Setting `toml:"also"`
	// Checkpoint has the changes that a checkpoint does not survive.
	Checkpoint []CheckpointLimit `toml:"checkpoint"`
	// Losses are the framework's treatments of a micro batch's loss; the first for the installed
	// versions counts.
	Losses []LossRule `toml:"loss"`
}

// Detection has the signs by which a command of the framework is recognised.
type Detection struct {
	// Imports are names ("transformers.HfArgumentParser") or whole modules ("deepspeed"); the
	// script imports at least one of them.
	Imports []string `toml:"imports"`
	// Unless are names or modules that rule the framework out.
	Unless []string `toml:"unless"`
	// Args are arguments; the command has at least one of them.
	Args []string `toml:"args"`
	// Overrides are keys of words like train.batch=8; one counts as an argument.
	Overrides []string
	// Env are variables that the framework's launcher sets; one counts as an argument.
	Env []string `toml:"env"`
	// Text are pieces of the script's source; one counts as an import.
	Text []string
	// Source are lists of pieces of the script's source: it needs no other sign if all of one are there.
	Source [][]string `toml:"source"`
	// Programs are modules, or ends of scripts' paths, of the framework itself: such a command
	// needs no other sign.
	Programs []string `toml:"programs"`
	// Keys are top-level keys; a configuration file of the command has at least one of them. A
	// key counts as an argument.
	Keys []string `toml:"keys"`
	// Over names recipes over which this one takes precedence if both match.
	Over []string `toml:"over"`
	// Not is the reason why a command with the signs does not belong to the framework after all,
	// empty if it does; nil: it does. A rule adds it.
	Not func(Command) string
}

// Signs reports whether a framework can be recognised.
func (d Detection) Signs() bool {
	return len(d.Imports)+len(d.Args)+len(d.Overrides)+len(d.Env)+len(d.Text)+len(d.Source)+len(d.Programs)+len(d.Keys) > 0
}

// Resume describes how a job continues from its newest checkpoint.
type Resume struct {
	// Latest is a glob of complete checkpoints. "{--output_dir}" in it is the value of that
	// argument, "{--output_dir|out}" with a default, "{name}" for one of Values.
	Latest string `toml:"latest"`
	// Args are put on the command line; "{latest}" in them is the checkpoint.
	Args []string `toml:"args"`
	// Also are settings with which the job resumes, in addition to Args: "{latest}" in a value is
	// the checkpoint.
	Also []Setting `toml:"also"`
	// Elsewhere are arguments of calls in the job's code with which its checkpoints are not where
	// Latest says.
	Elsewhere []Place `toml:"unless"`
	// Values are places whose text Latest and Args use, alternatives each.
	Values map[string][]Place `toml:"values"`
	// Defaults are the texts of Values that no place has.
	Defaults map[string]string
	// Pointer is a file, written as Latest is, that names the newest checkpoint: its whole text,
	// trimmed. Pointed is the checkpoint for a text that is not a path: "{pointer}" in it is the
	// text, "{pointer:7}" with zeros in front.
	Pointer string `toml:"pointer"`
	Pointed string
	// Needs are globs of files in a checkpoint folder without which it is not complete: those
	// that the framework writes last.
	Needs []string `toml:"needs"`
	// Lost is a regular expression for the framework's line when it starts from scratch instead
	// of resuming.
	Lost string `toml:"lost"`
	// Pin is added to the first command line already, if absent, so that every attempt uses the
	// same folder; "{job}" in it is a name of the run.
	Pin []string `toml:"pin"`
	// Env are variables for every attempt with which an experiment tracker continues one run;
	// "{job}" in them is a name of the run.
	Env map[string]string `toml:"env"`
	// Data describes the effect on the samples that were seen, if the job does not just continue
	// with the next; Shifts the effect of a changed knob.
	Data   string                   `toml:"data"`
	Shifts map[strategy.Knob]string `toml:"shifts"`
	// Exact: the job is known to continue with the next sample, for any micro batch.
	Exact bool
	// Own: the job's user, who knows its arguments, wrote it.
	Own bool
}

// ProgressLines describe the lines of the job's output that show a step.
type ProgressLines struct {
	// Step is a regular expression whose first group is the number of the step.
	Step string `toml:"step"`
	// Nothing is a regular expression for the line in which a job reports that it did nothing,
	// for any exit code.
	Nothing string `toml:"nothing"`
}

// Verified is the result of comparing a recipe with the framework itself.
type Verified struct {
	// Version names packages and their versions: "transformers 5.23.0, …".
	Version  string   `json:"version"`
	Remedies []string `json:"rungs" toml:"rungs"`
	// Cases is the number of commands that the framework read.
	Cases int `json:"cases,omitempty"`
}

func newRecipe() Recipe { return Recipe{Knobs: map[strategy.Knob]Knob{}} }

// With returns the recipe in which the knobs of over replace its knobs, with over's resume and
// progress if over has them.
func (r Recipe) With(over Recipe) Recipe {
	r.Knobs = maps.Clone(r.Knobs)
	if r.Knobs == nil {
		r.Knobs = map[strategy.Knob]Knob{}
	}
	maps.Copy(r.Knobs, over.Knobs)
	if over.Resume.Latest != "" {
		env := r.Resume.Env // only recipes have it
		r.Resume = over.Resume
		r.Resume.Own, r.Resume.Env = true, env
	}
	if over.Progress.Step != "" {
		r.Progress.Step = over.Progress.Step
	}
	return r
}

// Places lists all places that the recipe reads.
func (r Recipe) Places() []Place {
	all := slices.Concat(r.Model...)
	settings := slices.Concat(r.OwnOOM, r.Relaunch)
	for _, knob := range r.Knobs {
		all = append(append(all, knob.Places...), knob.Scales...)
		for _, one := range knob.Likely {
			all = append(all, one.Knob.Places...)
		}
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

// FilesNamed lists the configuration files, as written, that must be in cmd.Files before the
// recipe reads the command. A file can name another one: call FilesNamed again after loading
// them, until it lists nothing new. A file that does not exist is omitted, and reading reports it
// if it matters.
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

// Under is the option that the recipe's overrides follow; empty: none.
func (r Recipe) Under() string {
	for _, p := range r.Places() {
		if o, ok := p.PlaceKind.(interface{ leader() string }); ok && o.leader() != "" {
			return o.leader()
		}
	}
	return ""
}

// A CheckpointLimit has the values of a knob between which a checkpoint survives a change.
type CheckpointLimit struct {
	Knob strategy.Knob `toml:"knob" missing:"there is no knob \"\""`
	// Families are sets of values; within one, the checkpoint can be loaded. None: it survives no
	// change of the knob.
	Families [][]strategy.Value `toml:"survives" missing:"want a list of lists of values: [[\"zero1\", \"zero2\"], [\"zero3\"]]"`
	Reason   string             `toml:"reason"`
}

// A Rule connects settings of one framework in a way that a recipe file cannot describe. Recipe
// files name their rules.
type Rule struct {
	// Shape completes a recipe after it was read.
	Shape func(r *Recipe)
	// Read completes the values that were read from the places of the single knobs.
	Read func(d *Draft, plan strategy.Plan, ranges map[strategy.Knob]strategy.Range) error
	// Apply completes the values that were set at them; plan has every knob.
	Apply func(d *Draft, old, plan strategy.Plan) error
	// Checkpoint edits the files of a checkpoint that have settings, by their name in it.
	Checkpoint map[string]func(text []byte, plan strategy.Plan) ([]byte, error)
}

// LeaveBatch excludes the micro batch and the accumulation from changes.
func LeaveBatch(ranges map[strategy.Knob]strategy.Range, reason string) {
	ranges[strategy.MicroBatchSize], ranges[strategy.GradientAccumulationSteps] = strategy.Range{Absent: reason}, strategy.Range{Absent: reason}
}

// Rules are rules by the names that recipe files use.
type Rules map[string]Rule

// An ArgumentGrammar is the way in which the framework reads its command line. A recipe names it
// by the library that reads it.
type ArgumentGrammar struct {
	edit.Argv
	// Abbreviations: an argument may be abbreviated if that is unambiguous.
	Abbreviations bool
	// File: one JSON or YAML file as the only argument has all arguments by name, without their
	// dashes.
	File bool
	// Overrides: words key=value may follow that file, and are stronger.
	Overrides bool
}

// parsers are the ways of reading a command line, by the names that recipes use.
var parsers = map[string]ArgumentGrammar{
	"argparse": {Abbreviations: true},
	// argparse, and after its options pairs of words for a yacs configuration.
	"yacs": {Abbreviations: true, Argv: edit.Argv{Pairs: true}},
	// click, tyro, and scripts whose parser is not known.
	"dashes": {Argv: edit.Argv{Dashes: true}},
	// jsonargparse, and others that split words only at an equals sign.
	"equals": {Argv: edit.Argv{Equals: true}},
	// https://github.com/huggingface/transformers/blob/main/src/transformers/hf_argparser.py
	"HfArgumentParser": {Argv: hfParser, Abbreviations: true, File: true},
	// Descendants of it: TRL and ms-swift read files in other ways, LLaMA-Factory accepts words
	// a=b after the file.
	"TrlParser":    {Argv: hfParser, Abbreviations: true},
	"LLaMAFactory": {Argv: hfParser, Abbreviations: true, File: true, Overrides: true},
}

var hfParser = edit.Argv{Dashes: true, Booleans: true}

// parserNames lists the parsers.
func parserNames() []string { return slices.Sorted(maps.Keys(parsers)) }

// A LossRule is a framework's treatment of the loss when a step has more micro batches.
type LossRule struct {
	Class  string `toml:"class"`
	Reason string `toml:"reason" missing:"what the framework does with the loss is missing"`
	// Versions are those to which it applies; nil: all.
	Versions Versions `toml:"versions"`
	// Source are pieces of the script's source; it has one of them; nil: any script.
	Source []string `toml:"source"`
	// Unless are settings with which micro batches are equal on average only.
	Unless []Condition `toml:"unless"`
}

// The classes of a recipe's loss. Exact: the framework's own loss is a mean that it divides by
// the accumulation. Weighted: it weights micro batches by their tokens or samples. Average: it
// does neither. Features: it compares the samples of all micro batches. Script, Library: it
// divides a loss that the job's own code computes; for Library, one of its own models computes it
// if that code does not.
const (
	LossExact    = "exact"
	LossWeighted = "weighted"
	LossAverage  = "average"
	LossFeatures = "features"
	LossScript   = "script"
	LossLibrary  = "library"
)

var lossClasses = []string{LossExact, LossWeighted, LossAverage, LossFeatures, LossScript, LossLibrary}

// LossOf is the recipe's entry for the loss of a command; zero if it has none.
func (r Recipe) LossOf(cmd Command) LossRule {
	d := NewDraft(r, cmd)
	for _, l := range r.Losses {
		here := l.Source == nil || slices.ContainsFunc(l.Source,
			func(piece string) bool { return bytes.Contains(cmd.Script, []byte(piece)) })
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

// Known is the training by the framework alone.
func (l LossRule) Known() strategy.Loss {
	switch l.Class {
	case LossExact:
		return strategy.Loss{Class: strategy.Exact, Reason: l.Reason}
	case LossLibrary:
		return strategy.Loss{Class: strategy.Exact, Reason: l.Reason, Own: true}
	case LossWeighted:
		return strategy.Loss{Class: strategy.Exact, Reason: l.Reason, Weighted: true}
	case LossScript:
		return strategy.Loss{}
	}
	return strategy.Loss{Class: strategy.Average, Reason: cmp.Or(l.Reason,
		"the recipe does not state how the framework divides the loss")}
}

// Versions bounds the versions of Python packages: {"transformers": ">=4.36, <6"}.
type Versions map[string]string

var bound = lazy.Regexp(`^(>=|<=|==|!=|<|>)\s*([0-9]+(?:\.[0-9]+)*)$`)

// check reports the first bound that does not parse.
func (v Versions) check() error {
	for _, name := range slices.Sorted(maps.Keys(v)) {
		for part := range strings.SplitSeq(v[name], ",") {
			if !bound().MatchString(strings.TrimSpace(part)) {
				return fmt.Errorf("%q is not a bound: want \">=4.36, <6\"", strings.TrimSpace(part))
			}
		}
	}
	return nil
}

// Outside is the first installed package that is out of bounds, as "torch 2.1"; empty if all are
// inside. A package whose version is not known is inside.
func (v Versions) Outside(installed map[string]string) string {
	for _, name := range slices.Sorted(maps.Keys(v)) {
		version, known := installed[name]
		for part := range strings.SplitSeq(v[name], ",") {
			m := bound().FindStringSubmatch(strings.TrimSpace(part))
			if known && m != nil && !slices.Contains(orders[m[1]], CompareVersions(version, m[2])) {
				return name + " " + version
			}
		}
	}
	return ""
}

// orders are the results of a comparison that each operator allows.
var orders = map[string][]int{">=": {0, 1}, "<=": {-1, 0}, "<": {-1}, ">": {1}, "!=": {-1, 1}, "==": {0}}

// CompareVersions compares the leading numbers of two versions; the rest, such as rc1 or +cu124,
// does not count.
func CompareVersions(a, b string) int {
	x, y := release(a), release(b)
	n := max(len(x), len(y))
	return slices.Compare(append(x, make([]int, n-len(x))...), append(y, make([]int, n-len(y))...))
}

var leadingNumbers = lazy.Regexp(`^\d+(\.\d+)*`)

// release returns the numbers of a version: 2.9.0rc1+cu128 is 2, 9, 0.
func release(version string) []int {
	var numbers []int
	for part := range strings.SplitSeq(leadingNumbers().FindString(version), ".") {
		if n, err := strconv.Atoi(part); err == nil {
			numbers = append(numbers, n)
		}
	}
	return numbers
}
