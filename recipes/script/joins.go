package script

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/gpurun/gpurun/launcher/lazy"
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
var spawners = []string{"ultralytics.YOLO", "ultralytics.RTDETR", "detectron2.engine.launch", "ray.train", "torch.multiprocessing.spawn"}

// deviceRanks are frameworks whose Trainer starts a rank for each of its devices, if nobody has started one.
var deviceRanks = []string{"lightning", "pytorch_lightning", "lightning_fabric"}

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

// Joins finds how a script joins a process group, by its source and those of the local modules
// that it imports, the script first, and by the calls of their code, as far as they are known. It
// is false if nothing shows that it does.
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

// OwnRanks is the evidence that a script may train with several ranks though it is started as one process; empty for
// none. Whether it does depends on its settings, and on the devices.
func OwnRanks(sources []format.Source, code format.ScriptCode) string {
	for _, name := range deviceRanks {
		for _, s := range sources {
			if imports(s, name) && !oneDevice(code) {
				return path.Base(s.Path) + " imports " + name + ", which can start one for each device"
			}
		}
	}
	given := slices.IndexFunc(code, func(file format.CodeFile) bool { return file.Given != "" })
	joins := slices.IndexFunc(code, func(file format.CodeFile) bool { return file.Joins != "" })
	starts := slices.IndexFunc(code, func(file format.CodeFile) bool { return file.Starts != "" })
	runs := RunsPrograms(sources, code)
	switch j, joined := Joins(sources, code); {
	case j.Spawns:
		return j.By
	case !joined && runs != "":
		return path.Base(sources[0].Path) + " runs other programs, by " + runs
	case given >= 0:
		return path.Base(code[given].Path) + " gives " + code[given].Given + ", which may start one for each device"
	case joins >= 0 && starts >= 0:
		return fmt.Sprintf("%s starts processes by %s, and %s calls %s", path.Base(code[starts].Path), code[starts].Starts, path.Base(code[joins].Path), code[joins].Joins)
	case starts >= 0 && strings.HasPrefix(code[starts].Starts, "torch."):
		return fmt.Sprintf("%s starts processes by %s", path.Base(code[starts].Path), code[starts].Starts)
	}
	return ""
}

// RunsPrograms returns the function with which a script runs other programs, where it does not use PyTorch itself:
// empty for none.
func RunsPrograms(sources []format.Source, code format.ScriptCode) string {
	switch {
	case len(sources) == 0 || Torch(sources):
		return ""
	case len(code) > 0:
		return code[0].Runs
	}
	if m := runsCall().FindSubmatch(sources[0].Text); m != nil {
		return string(m[1])
	}
	return ""
}

// runsCall is such a call in a script that is not parsed, because it does not name PyTorch.
var runsCall = lazy.Regexp(`(?m)^[^#\n]*\b(os\.system|subprocess\.(?:run|call|check_call|Popen))\(`)

// oneDevice reports whether each Trainer of the code has one device, or is one process for all: "dp".
func oneDevice(code format.ScriptCode) bool {
	trainers := code.CallsOf("lightning.pytorch.Trainer")
	return len(trainers) > 0 && !slices.ContainsFunc(trainers, func(call format.CodeCall) bool {
		devices, gpus := call.Keyword["devices"], call.Keyword["gpus"]
		return devices.Text != "1" && gpus.Text != "1" && call.Keyword["accelerator"].Text != "dp" && call.Keyword["strategy"].Text != "dp"
	})
}
