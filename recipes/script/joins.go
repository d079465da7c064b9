package script

import (
	"bytes"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/gpurun/gpurun/recipes/format"
)

// A Joining is how a script takes part in a training of several processes.
type Joining struct {
	// By is by what that shows, for people: "train.py calls init_process_group".
	By string
	// Spawns: the script starts its ranks itself.
	Spawns bool
	// Alone: as a single process it trains without having a rank.
	Alone bool
}

var (
	// joinCalls are what a script of one's own joins a process group with.
	joinCalls = regexp.MustCompile(`\b(init_process_group|init_device_mesh|init_distributed|init_distributed_mode|init_distributed_device)[ \t]*\(`)
	// spawnCalls start ranks from inside.
	spawnCalls  = regexp.MustCompile(`\b((?:mp|multiprocessing|xmp)\.spawn|notebook_launcher|debug_launcher|elastic_launch)[ \t]*\(`)
	definitions = regexp.MustCompile(`\bdef[ \t]+\w+`)
	// docstrings speak of calls that are none.
	docstrings = regexp.MustCompile(`(?s)""".*?"""|'''.*?'''`)
)

// spawners are frameworks that start the ranks of a script themselves.
var spawners = []string{"ultralytics", "detectron2.engine.launch", "ray.train", "torch.multiprocessing.spawn"}

// frameworks join a process group where there is one. Those that are marked train
// as a single process without one; the others ask for a rank, or for the variables
// of one.
var frameworks = []struct {
	name  string
	alone bool
}{
	{"deepspeed", false}, {"megatron", false}, {"colossalai", false}, {"fairseq2", false}, {"torchtitan", false}, {"torchtune", false},
	{"accelerate", true}, {"trl", true}, {"lightning", true}, {"pytorch_lightning", true}, {"lightning_fabric", true}, {"composer", true},
	{"transformers.Trainer", true}, {"transformers.Seq2SeqTrainer", true}, {"transformers.TrainingArguments", true}, {"transformers.Seq2SeqTrainingArguments", true},
	{"sentence_transformers.SentenceTransformerTrainer", true}, {"mmengine", true}, {"nemo", true}, {"open_clip_train", true},
}

// Joins tells how a script joins a process group, by its source and those of the
// modules of its own that it imports; the script comes first. It is false where
// nothing shows that it does. It reads text, not Python.
func Joins(sources []format.Source) (Joining, bool) {
	for _, s := range sources {
		if call := calledIn(s, spawnCalls, "spawn", "_launch"); call != "" {
			return Joining{By: path.Base(s.Path) + " starts its ranks itself, by " + call, Spawns: true}, true
		}
		for _, name := range spawners {
			if importsQuickly(s, name) {
				return Joining{By: path.Base(s.Path) + " imports " + name + ", which starts the ranks itself", Spawns: true}, true
			}
		}
	}
	for _, s := range sources {
		if call := calledIn(s, joinCalls, "init_"); call != "" {
			return Joining{By: path.Base(s.Path) + " calls " + call}, true
		}
	}
	for _, f := range frameworks {
		for _, s := range sources {
			if importsQuickly(s, f.name) {
				return Joining{By: path.Base(s.Path) + " imports " + f.name, Alone: f.alone}, true
			}
		}
	}
	return Joining{}, false
}

// calledIn is the function of a pattern that a source calls, empty for none. Few sources
// have one of the words that such a call has.
func calledIn(s format.Source, pattern *regexp.Regexp, words ...string) string {
	if !slices.ContainsFunc(words, func(word string) bool { return bytes.Contains(s.Text, []byte(word)) }) {
		return ""
	}
	if m := pattern.FindStringSubmatch(code(s)); m != nil {
		return m[1]
	}
	return ""
}

// importsQuickly is imports for many names, few of which a source has.
func importsQuickly(s format.Source, name string) bool {
	root, _, _ := strings.Cut(name, ".")
	return bytes.Contains(s.Text, []byte(root)) && imports(s.Text, name)
}

// code is a source without what only people read. A definition is no call.
func code(s format.Source) string {
	return definitions.ReplaceAllString(docstrings.ReplaceAllString(withoutComments(s.Text), `""`), "def")
}
