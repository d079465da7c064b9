// Package detect reads names: which framework a job's command starts, and which of the arguments and configuration keys
// of a script may be knobs. The job's interpreter parses the source with reader.py, which imports nothing of the
// job's; what a value means, only the job's process says.
package detect

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/gpurun/gpurun/launcher/lazy"
	"github.com/gpurun/gpurun/recipes/format"
)

// Program is the Python program that an interpreter runs for a request, with Input on its
// standard input; its output is for Read. It needs Python 3.8.
//
//go:embed reader.py
var Program string

// A SourceRequest is the input of Program.
type SourceRequest struct {
	// Sources are the script, then its local modules.
	Sources []format.Source
	// Names are functions, by their last names, whose calls are listed in addition to those of
	// classes.
	Names []string
	// Seconds is the limit of its processor time; its findings until then are the result.
	Seconds float64
}

// Input is the request in the form that Program reads.
func (r SourceRequest) Input() ([]byte, error) {
	type file struct {
		Path string `json:"path"`
		Text string `json:"text"`
	}
	files := make([]file, len(r.Sources))
	for i, s := range r.Sources {
		files[i] = file{s.Path, string(s.Text)}
	}
	return json.Marshal(map[string]any{"sources": files, "names": r.Names, "seconds": r.Seconds})
}

// A SourceReading is the result of a request.
type SourceReading struct {
	Code    format.ScriptCode `json:"files"`
	Unknown string            `json:"unknown"` // why a part is missing
}

// Read reads the output of Program: its last line, because a sitecustomize may have printed
// before.
func Read(printed []byte) (SourceReading, error) {
	text := strings.TrimSpace(string(printed))
	var r SourceReading
	if err := json.Unmarshal([]byte(text[strings.LastIndexByte(text, '\n')+1:]), &r); err != nil {
		return SourceReading{}, fmt.Errorf("read the output of the script's reader: %w", err)
	}
	if len(r.Code) == 0 {
		r.Code = nil
	}
	return r, nil
}

// An Import is one module that a Python file imports.
type Import struct {
	// Module is its name; one that begins with dots is relative to the importing file, in
	// Python's way of counting.
	Module string
	// As is its name after a plain import: the module, or the name after "as".
	As string
	// Names are the names imported from it, which can also be modules; nil for a plain import.
	Names []string
}

var (
	comment      = lazy.Regexp(`(?m)#.*$`)
	continuation = lazy.Regexp(`\\\r?\n`)
	fromImport   = lazy.Regexp(`(?m)^[ \t]*from[ \t]+([\w.]+)[ \t]+import[ \t]+(\([^)]*\)|[^\n;]+)`)
	plainImport  = lazy.Regexp(`(?m)^[ \t]*import[ \t]+([^\n;]+)`)
)

// withoutComments is a source with each statement on a separate line.
func withoutComments(source []byte) string {
	return comment().ReplaceAllString(continuation().ReplaceAllString(string(source), " "), "")
}

// Imports lists the imports of a Python file at any place in it: first those with names. It reads
// text, because the imports decide which files the interpreter parses, and name the framework
// even if no interpreter can be run: an import in a string counts.
func Imports(source []byte) []Import {
	text := withoutComments(source)
	var all []Import
	for _, m := range fromImport().FindAllStringSubmatch(text, -1) {
		all = append(all, Import{Module: m[1], Names: []string{}})
		i := &all[len(all)-1]
		for item := range strings.SplitSeq(strings.Trim(m[2], "()"), ",") {
			if fields := strings.Fields(item); len(fields) > 0 {
				i.Names = append(i.Names, fields[0])
			}
		}
	}
	for _, m := range plainImport().FindAllStringSubmatch(text, -1) {
		for item := range strings.SplitSeq(m[1], ",") {
			if fields := strings.Fields(item); len(fields) > 0 {
				all = append(all, Import{Module: fields[0], As: fields[len(fields)-1]})
			}
		}
	}
	return all
}

// Files lists the possible files of an import below the folder that it counts from:
// slash-separated, without an ending. A package's own file is folder/__init__. The import runs
// all of them that exist. up is the number of folders above the importing file's own at which the
// counting starts; -1 for an absolute import.
func (i Import) Files() (up int, files []string) {
	name := strings.TrimLeft(i.Module, ".")
	up = len(i.Module) - len(name) - 1
	below := ""
	for part := range strings.SplitSeq(name, ".") {
		if part == "" {
			break
		}
		below += part
		files = append(files, below+"/__init__", below)
		below += "/"
	}
	for _, member := range i.Names {
		if member != "*" {
			files = append(files, below+member+"/__init__", below+member)
		}
	}
	return up, slices.Compact(files)
}

// imports reports whether a Python file imports a module ("deepspeed"), or imports and thus can
// use a name of a module ("transformers.HfArgumentParser"). Few files contain the name of the
// package at all.
func imports(source format.Source, name string) bool {
	root, _, _ := strings.Cut(name, ".")
	if text := string(source.Text); !strings.Contains(text, root) {
		return false
	}
	dot := max(0, strings.LastIndexByte(name, '.'))
	module, member := name[:dot], strings.TrimPrefix(name[dot:], ".")
	return slices.ContainsFunc(Imports(source.Text), func(i Import) bool {
		switch {
		case within(i.Module, name):
			return true
		case dot == 0:
			return false
		case i.Names == nil:
			return i.Module == module && strings.Contains(withoutComments(source.Text), i.As+"."+member)
		}
		return within(i.Module, module) && slices.Contains(i.Names, member)
	})
}

// within reports whether a module is another, or a part of it.
func within(module, other string) bool {
	return module == other || strings.HasPrefix(module, other+".")
}

// anyImports reports whether one of some files imports a name.
func anyImports(sources []format.Source, name string) bool {
	return slices.ContainsFunc(sources, func(s format.Source) bool { return imports(s, name) })
}

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
var spawners = []string{"ultralytics.YOLO", "ultralytics.RTDETR", "detectron2.engine.launch", "ray.train",
	"torch.multiprocessing.spawn", "submitit"}

// frameworks join a process group if there is one. The marked ones train as a single process
// without one; the others need a rank, or the variables of one.
var frameworks = []struct {
	name  string
	alone bool
}{
	{"deepspeed", false}, {"megatron", false}, {"colossalai", false}, {"fairseq2", false}, {"torchtitan", false},
	{"torchtune", false},
	{"accelerate", true}, {"trl", true}, {"lightning", true}, {"pytorch_lightning", true}, {"lightning_fabric", true},
	{"composer", true},
	{"transformers.Trainer", true}, {"transformers.Seq2SeqTrainer", true}, {"transformers.TrainingArguments", true},
	{"transformers.Seq2SeqTrainingArguments", true},
	{"sentence_transformers.SentenceTransformerTrainer", true}, {"mmengine", true}, {"nemo", true},
	{"open_clip_train", true},
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

// onTorch are packages that train with PyTorch: a file that imports one of them uses it.
var onTorch = []string{
	"torch", "torchvision", "torchaudio", "torchtune", "torchtitan", "transformers", "lightning", "pytorch_lightning",
	"accelerate", "deepspeed",
	"diffusers", "timm", "trl", "peft", "unsloth", "axolotl", "llamafactory", "swift", "composer", "llmfoundry",
	"open_clip", "sentence_transformers",
	"fairseq", "fairseq2", "megatron", "nemo", "mmengine", "mmcv", "mmdet", "detectron2", "ultralytics", "fastai",
	"ignite", "catalyst", "monai",
	"kornia", "torch_geometric", "segmentation_models_pytorch", "espnet", "espnet2", "speechbrain", "verl",
}

// MentionsTorch reports whether a source has the name of a package that trains with PyTorch. Only
// for such a source is it worth starting an interpreter.
func MentionsTorch(source []byte) bool {
	return slices.ContainsFunc(onTorch, func(name string) bool { return bytes.Contains(source, []byte(name)) })
}
