package snapshot

import (
	"slices"
	"strings"
)

// A place is what a stack comes to: where in the code, and what that says of the memory.
type place struct {
	file, function string
	line           int
	what           string // "weights", "optimizer state", or nothing
	attention      bool   // some frame is about attention
}

// A frame is one line of a stack.
type frame struct {
	file, function string
	line           int
}

// mostFrames bounds how far a stack is looked at, and mostText the length of its names.
const (
	mostFrames = 256
	mostText   = 400
)

// places remembers what stacks come to: many blocks share one.
type places struct {
	known    map[*list]place
	patience *patience
}

// of gives a stack's place, none where there is no time for it.
func (p places) of(stack *list) place {
	if found, known := p.known[stack]; known {
		return found
	}
	if p.patience.over(1 + min(len(stack.items), mostFrames)) {
		return place{}
	}
	found := placeOf(framesOf(stack))
	p.known[stack] = found
	return found
}

// framesOf gives a stack's frames, the innermost first, without those of the probe.
func framesOf(stack *list) []frame {
	var frames []frame
	for _, each := range stack.items[:min(len(stack.items), mostFrames)] {
		d := dictOf(each)
		file, _ := d.get("filename").(string)
		function, _ := d.get("name").(string)
		file = strings.ReplaceAll(short(file, mostText), "\\", "/")
		if file != "" && !probes(file) {
			frames = append(frames, frame{file, short(function, mostText/4), int(size(d.get("line")))})
		}
	}
	return frames
}

// probes tells whether a file is one of gpurun's in the process.
func probes(file string) bool {
	folder, _, _ := cutLast(file, "/")
	return strings.HasSuffix(folder, "/inside") && strings.Contains(folder, "/probe-")
}

func cutLast(s, sep string) (before, after string, found bool) {
	if i := strings.LastIndex(s, sep); i >= 0 {
		return s[:i], s[i+len(sep):], true
	}
	return "", s, false
}

// placeOf finds the innermost line outside PyTorch. A line of the user's own stands for a
// library's where it is inside a module's call: a helper's line says little of a model, and
// a line that trains by a framework says nothing.
func placeOf(frames []frame) place {
	outside, own := -1, -1
	for i, f := range frames {
		if outside < 0 && !torchs(f.file) && !interpreters(f.file) {
			outside = i
		}
		if own < 0 && !installed(f.file) && !interpreters(f.file) {
			own = i
		}
	}
	chosen := outside
	if own >= 0 && (chosen < 0 || slices.ContainsFunc(frames[own:], calls)) {
		chosen = own
	}
	if chosen < 0 && len(frames) > 0 {
		chosen = 0
	}
	if chosen < 0 {
		return place{}
	}
	f := frames[chosen]
	return place{file: f.file, function: f.function, line: f.line, what: whatOf(frames), attention: slices.ContainsFunc(frames[:chosen+1], attends)}
}

// moduleOf gives a file's name as people read it: of a package from its own folder on.
func moduleOf(file string) string {
	if _, module, found := cutLast(file, "-packages/"); found {
		return module
	}
	_, name, _ := cutLast(file, "/")
	return name
}

// torchs tells whether a file is PyTorch's own.
func torchs(file string) bool {
	_, rest, found := cutLast(file, "-packages/")
	return found && strings.HasPrefix(rest, "torch/") || strings.Contains(file, "/torch/_inductor/") || strings.Contains(file, "/torchinductor_")
}

// installed tells whether a file is of a package.
func installed(file string) bool {
	return strings.Contains(file, "/site-packages/") || strings.Contains(file, "/dist-packages/") || strings.Contains(file, "/torchinductor_")
}

// interpreters tells whether a file is Python's own, or none.
func interpreters(file string) bool {
	if strings.HasPrefix(file, "<") || !strings.Contains(file, ".py") {
		return true
	}
	_, rest, found := strings.Cut(file, "/lib/python3")
	return found && !installed(file) && strings.Contains(rest, "/")
}

// calls tells whether a frame is the call of a module.
func calls(f frame) bool {
	return strings.HasSuffix(f.file, "torch/nn/modules/module.py") && (strings.Contains(f.function, "call_impl") || strings.HasSuffix(f.function, "__call__"))
}

// attends tells whether a frame is about attention.
func attends(f frame) bool {
	text := strings.ToLower(f.file + " " + f.function)
	return strings.Contains(text, "attention") || strings.Contains(text, "attn") || strings.HasSuffix(text, " softmax")
}

// movers are the methods of a module by which its weights come to a device.
var movers = []string{"_apply", "to", "cuda", "half", "bfloat16", "float"}

// whatOf tells what memory is that a stack allocated, where the stack says it.
func whatOf(frames []frame) string {
	for _, f := range frames {
		switch {
		case calls(f):
			return "" // inside a forward
		case strings.Contains(f.file, "torch/optim/") && !strings.Contains(f.file, "lr_scheduler"), strings.Contains(f.file, "/bitsandbytes/optim/"):
			return "optimizer state"
		case strings.HasSuffix(f.file, "torch/nn/modules/module.py") && slices.Contains(movers, f.function),
			strings.Contains(f.file, "torch/nn/modules/") && (f.function == "__init__" || f.function == "reset_parameters"),
			strings.HasSuffix(f.function, "from_pretrained"):
			return "weights"
		}
	}
	return ""
}
