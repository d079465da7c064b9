package detect

import (
	"path"

	"github.com/gpurun/gpurun/recipes/format"
)

// A Joining describes how a script takes part in a training of several processes.
type Joining struct {
	// By is the evidence, for people: "train.py calls init_process_group".
	By string
	// Spawns: the script starts its ranks itself.
	Spawns bool
	// Alone: as a single process it trains without having a rank.
	Alone bool
}

// spawners are frameworks that start the ranks of a script themselves.
var spawners = []string{"ultralytics.YOLO", "ultralytics.RTDETR", "detectron2.engine.launch", "ray.train", "torch.multiprocessing.spawn", "submitit"}

// frameworks join a process group if there is one. The marked ones train as a single process
// without one; the others need a rank, or the variables of one.
var frameworks = []struct {
	name  string
	alone bool
}{
	{"deepspeed", false}, {"megatron", false}, {"colossalai", false}, {"fairseq2", false}, {"torchtitan", false}, {"torchtune", false},
	{"accelerate", true}, {"trl", true}, {"lightning", true}, {"pytorch_lightning", true}, {"lightning_fabric", true}, {"composer", true},
	{"transformers.Trainer", true}, {"transformers.Seq2SeqTrainer", true}, {"transformers.TrainingArguments", true}, {"transformers.Seq2SeqTrainingArguments", true},
	{"sentence_transformers.SentenceTransformerTrainer", true}, {"mmengine", true}, {"nemo", true}, {"open_clip_train", true},
}

// Joins finds how a script joins a process group, by the names that it and the local modules
// that it imports have, the script first. It is false if no name shows that it does.
func Joins(sources []format.Source, code format.ScriptCode) (Joining, bool) {
	for _, file := range code {
		if file.Spawns != "" {
			return Joining{By: path.Base(file.Path) + " calls " + file.Spawns + ", which starts ranks", Spawns: true}, true
		}
	}
	for _, s := range sources {
		for _, name := range spawners {
			if imports(s, name) {
				return Joining{By: path.Base(s.Path) + " imports " + name + ", which starts the ranks itself", Spawns: true}, true
			}
		}
	}
	for _, file := range code {
		if file.Joins != "" {
			return Joining{By: path.Base(file.Path) + " calls " + file.Joins}, true
		}
	}
	for _, f := range frameworks {
		for _, s := range sources {
			if imports(s, f.name) {
				return Joining{By: path.Base(s.Path) + " imports " + f.name, Alone: f.alone}, true
			}
		}
	}
	return Joining{}, false
}
