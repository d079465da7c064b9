package show

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/gpurun/gpurun/launcher/commandline"
	"github.com/gpurun/gpurun/recipes/edit"
	"github.com/gpurun/gpurun/strategy"
)

// A paste makes hints from a proposal.
type paste struct{ strategy.Proposal }

// hints returns hints on what to write. Each ends with text to paste.
func (p paste) hints() []string {
	var hints []string
	if !p.Unchanged || len(p.Code)+len(p.Turned) == 0 {
		hints = p.commandHints()
	}
	if len(p.Code) > 0 {
		hints = append(hints, p.next()+"write in the code: "+strings.Join(p.Code, ", "))
	}
	return hints
}

// codeHints returns hints on how the job's own code can have what gpurun changed in its process.
func (p paste) codeHints() (hints []string) {
	for _, k := range strategy.Knobs {
		v, turned := p.Turned[k]
		if inside := strategy.InsideOf(k); turned && inside != nil {
			how := inside.InCode
			switch {
			case k != strategy.ActivationCheckpointing:
			case p.Model != nil:
				how = checkpointing(p.Model)
			case p.OwnModel:
				how = strings.Replace(how, strategy.CheckpointSwitch, "", 1)
			}
			hints = append(hints, fmt.Sprintf("gpurun set %s to %s inside the process; %s", k.Short(), v, how))
		}
	}
	return hints
}

// checkpointing describes how a model can recompute its activations.
func checkpointing(m *strategy.Model) string {
	if m.Switch != "" {
		return fmt.Sprintf("to have it without gpurun, call %s() of the model (%s)", m.Switch, m.Class)
	}
	blocks := "each block"
	for i, list := range m.Blocks {
		switch {
		case i == 0:
			blocks = ""
		case i == mostLists:
			return "to have it without gpurun, " + strategy.CheckpointCall + blocks + " and of other lists"
		default:
			blocks += " and "
		}
		blocks += fmt.Sprintf("each %s of %s", list.Class, inPython(list.Path))
	}
	return "to have it without gpurun, " + strategy.CheckpointCall + blocks
}

// mostLists is how many lists of blocks a hint names.
const mostLists = 3

// inPython writes the path of a module as code: 0.layers is model[0].layers.
func inPython(path string) string {
	code := "model"
	for part := range strings.SplitSeq(path, ".") {
		if _, err := strconv.Atoi(part); err == nil {
			code += "[" + part + "]"
		} else if part != "" { // a list may be the model itself
			code += "." + part
		}
	}
	return code
}

// next returns when the proposal takes effect.
func (p paste) next() string {
	if p.Remembered {
		return "the next start begins with this plan by itself; to make it permanent, "
	}
	return "to start with this plan next time, "
}

func (p paste) commandHints() []string {
	next := p.next()
	switch p.Key {
	case "":
		return []string{next + "type: " + shellLine(p.Env, p.Words)}
	case "argv":
		return []string{next + "give the job: " + shellLine(p.Env, p.Words)}
	case "command":
		return []string{fmt.Sprintf("%sset in [job] of %s: command = %s", next, p.File, edit.TOMLValue(p.line()))}
	}
	hints := []string{fmt.Sprintf("%sset in [job] of %s: %s = %s", next, p.File, p.Key, edit.TOMLValue(p.Words))}
	if p.NoArgs {
		hints[0] += ", and remove args"
	}
	if len(p.Env) > 0 {
		var pairs []string
		for _, k := range slices.Sorted(maps.Keys(p.Env)) {
			pairs = append(pairs, k+" = "+edit.TOMLValue(p.Env[k]))
		}
		if variables := strings.Join(pairs, ", "); p.HasEnv {
			hints = append(hints, "and add to its env: "+variables)
		} else {
			hints = append(hints, "and next to it: env = { "+variables+" }")
		}
	}
	return hints
}

// line writes the command with the variables that the user wrote.
func (p paste) line() string {
	var line []string
	for _, k := range slices.Sorted(maps.Keys(p.Env)) {
		line = append(line, cmp.Or(p.EnvSources[k], k+"="+commandline.QuoteWord(p.Env[k])))
	}
	for i, w := range p.Words {
		if source, written := p.Sources[i]; !written {
			line = append(line, commandline.QuoteWord(w)) // job.command is no shell
		} else if source != "" {
			line = append(line, source)
		}
	}
	return strings.Join(line, " ")
}

// shellLine writes a command as typed into a shell.
func shellLine(env map[string]string, words []string) string {
	var line []string
	for _, k := range slices.Sorted(maps.Keys(env)) {
		line = append(line, k+"="+commandline.PasteWord(env[k]))
	}
	for _, w := range words {
		line = append(line, commandline.PasteWord(w))
	}
	return strings.Join(line, " ")
}
