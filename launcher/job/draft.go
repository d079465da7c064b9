package job

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/gpurun/gpurun/launcher/commandline"
	"github.com/gpurun/gpurun/launcher/errext"
	"github.com/gpurun/gpurun/recipes/edit"
	"github.com/gpurun/gpurun/recipes/format"
	"github.com/gpurun/gpurun/strategy"
)

// Draft returns a train.toml for a job on a command line, with everything that gpurun found out about the
// job: settings that the processes of some attempts confirmed as entries, likely ones as comments. It stands for the
// same plan as the command line. The error has a hint.
func (p *Prepared) Draft(history []strategy.Attempt) (string, error) {
	if file := p.Job.Path; file != "" {
		return "", errext.Errorf("name the script or the command that it is to be written for; gpurun plan shows what the file means", "%s is a train.toml already", file)
	}
	described := p.StrategyJob()
	d := &draft{Prepared: p, typed: p.Job.origin.line, reported: described.Reported(history),
		confirmed: described.Confirmed(history)}
	if err := d.refused(); err != nil {
		return "", err
	}
	d.line("# Written by gpurun init. gpurun plan train.toml shows what it means, gpurun train.toml runs it.")
	d.job()
	d.policy()
	d.knobs()
	d.resume()
	return d.text.String(), nil
}

// A draft is a train.toml while it is written.
type draft struct {
	*Prepared
	typed *commandline.TorchrunCommand
	// reported are the values of the processes, confirmed the likely settings that they use.
	reported  strategy.Plan
	confirmed strategy.Arguments
	text      strings.Builder
}

func (d *draft) line(format string, args ...any) {
	fmt.Fprintf(&d.text, strings.TrimRight(format, "\n")+"\n", args...)
}

// asLine reports whether the job is written as the line that was typed: it begins with a launcher, an interpreter, a
// wrapper or another program.
func (d *draft) asLine() bool {
	return d.Job.Kind == Program || d.typed.Command[0] != d.Job.Argv[0]
}

// torchrun returns the flags of torchrun before the command.
func (d *draft) torchrun() []string {
	return slices.DeleteFunc(slices.Clone(d.typed.Torchrun), func(word string) bool { return word == "--" })
}

// refused refuses a flag of torchrun before another command, where neither the command nor its train.toml has it.
func (d *draft) refused() error {
	if !d.asLine() || len(d.torchrun()) == 0 {
		return nil
	}
	for _, name := range slices.Sorted(maps.Keys(d.typed.Set)) {
		if source := d.typed.Set[name]; commandline.IsTorchrunOption(name) && strings.HasPrefix(source, "-") {
			return errext.Errorf("omit it here, and "+inFile(name, source)+" in the train.toml",
				"%s is a flag of torchrun, and is before %s", source, d.typed.Command[0])
		}
	}
	return nil
}

// job writes the command as typed.
func (d *draft) job() {
	j := d.Job
	d.line("\n[job]")
	d.line("name = %s", edit.TOMLValue(j.Name))
	own := d.torchrun()
	line := len(own) > 0 || d.asLine()
	switch {
	case len(own) > 0:
		d.line("command = %s", edit.TOMLValue(commandline.Quote(slices.Concat([]string{"torchrun"}, own, d.typed.Command))))
	case line:
		d.line("command = %s", edit.TOMLValue(commandline.Quote(d.typed.Command)))
	default:
		key := "script"
		if j.Kind == Module {
			key = "module"
		}
		d.line("%s = %s", key, edit.TOMLValue(j.Argv[0]))
		if len(j.Argv) > 1 {
			d.line("args = %s", edit.TOMLValue(j.Argv[1:]))
		}
	}
	if named := d.typed.Python; named != "" {
		d.line("python = %s", edit.TOMLValue(named))
	}
	if !line {
		defer d.launch()
	}
	switch name, evidence := d.Recipe(); {
	case name != "" && name != ownScript:
		d.line("# recipe = %s   # recognised by: %s", edit.TOMLValue(name), strings.Join(evidence, ", "))
	case name == ownScript:
		d.line("# No recipe knows this script; the settings below have the names of knobs.")
	}
}

// policy writes gpurun's own flags: those of the policy as keys, and others, which no file has, as a comment.
func (d *draft) policy() {
	own := d.typed.Own
	given := policyFlags(own)
	if own.NotInPlace {
		given = append(given, policyFlag{"recovery.in_place", "--no-in-place", "false"})
	}
	for _, section := range []string{"recovery", "limits"} {
		heading := "\n[" + section + "]"
		for _, f := range given {
			name, is := strings.CutPrefix(f.key, section+".")
			if !is {
				continue
			}
			if heading != "" {
				d.line("%s", heading)
			}
			heading = ""
			value := f.value
			switch Said(section, name).Form {
			case NumberForm, TruthForm:
			case ListForm:
				var all []string
				for word := range strings.SplitSeq(value, ",") {
					all = append(all, strings.TrimSpace(word))
				}
				value = edit.TOMLValue(all)
			default:
				value = edit.TOMLValue(value)
			}
			d.line("%s = %s", name, value)
		}
	}
	var each []string
	for name, source := range d.typed.Set {
		hasKey := slices.ContainsFunc(given, func(f policyFlag) bool { return f.flag == "--"+name })
		if commandline.IsOwnOption(name) && name != "json" && !hasKey {
			each = append(each, source)
		}
	}
	if slices.Sort(each); len(each) > 0 {
		d.line("\n# No key has the meaning of %s: type it with each run, before train.toml.", strings.Join(each, ", "))
	}
}

// launch writes the number of ranks, unless it is in the command.
func (d *draft) launch() {
	count := d.Job.Launch.NprocPerNode
	if _, err := strconv.Atoi(count); err != nil {
		count = edit.TOMLValue(count)
	}
	d.line("\n[launch]")
	d.line("nproc_per_node = %s   # \"auto\": a rank for each usable GPU, where the script is distributed", count)
}

// knobs writes settings that a process confirmed as entries, and others as comments.
func (d *draft) knobs() {
	if d.recipe.Name == "" || d.recipe.Name != ownScript && len(d.reported) == 0 {
		d.line("\n# [knobs]")
	} else {
		d.line("\n[knobs]")
	}
	for _, k := range strategy.Knobs {
		if value := d.Value(k); value != "" && len(d.Prepared.knobs[k].Likely) == 0 {
			d.line("# %s: %s", k, cmp.Or(string(d.reported[k]), value))
		}
		for _, one := range d.Prepared.knobs[k].Likely {
			i := slices.IndexFunc(d.recipe.Knobs[k].Likely, func(o format.LikelyPlace) bool { return o.Name == one.Name })
			switch {
			case i < 0 || len(d.recipe.Knobs[k].Likely[i].Knob.Places) == 0:
				d.line("# %s: likely %s", k, one.Name)
			case d.confirmed[k].Name == one.Name:
				d.line("# The process uses its value, %s.", d.reported[k])
				d.line("%s = %s", k, edit.TOMLValue(entryOf(d.recipe.Knobs[k].Likely[i], d.confirmed[k])))
			default:
				d.line("# likely, by its name:\n# %s = %s", k,
					edit.TOMLValue(entryOf(d.recipe.Knobs[k].Likely[i], strategy.Argument{})))
			}
		}
	}
}

// entryOf is a setting as an entry of [knobs].
func entryOf(of format.LikelyPlace, by strategy.Argument) map[string]any {
	entry := maps.Clone(of.Entry)
	if by.Times > 1 {
		entry["scope"] = strategy.ScopeGlobal
	}
	return entry
}

// resume writes where an attempt finds its checkpoint.
func (d *draft) resume() {
	d.line("\n# [resume]\n# %s", d.Resumption())
	if d.recipe.Resume.Latest == "" {
		d.line("# latest = \"out/checkpoint-*\"\n# args = [\"--resume\", \"{latest}\"]")
	}
}

// DraftArgs reads the arguments of gpurun init: the job, with --dry-run before or after it. Without a job it takes
// the only script in the working directory that trains. The error has a hint.
func DraftArgs(args []string) (rest []string, dry bool, err error) {
	const flag = "--dry-run"
	n := slices.IndexFunc(args, func(word string) bool { return word == flag || !strings.HasPrefix(word, "-") })
	if n < 0 || args[n] != flag {
		n = len(args) - 1 // behind the job
	}
	if n >= 0 && args[n] == flag {
		dry = true
		args = slices.Delete(slices.Clone(args), n, n+1)
	}
	named := slices.ContainsFunc(args, func(word string) bool {
		return word != "--json" && !strings.HasPrefix(word, "--start")
	})
	if named {
		return args, dry, nil
	}
	script, err := onlyScript(".")
	return append(slices.Clone(args), script), dry, err
}

// onlyScript returns the training script in a folder: train.py, or the only Python file with a backward pass.
func onlyScript(dir string) (string, error) {
	if exists(filepath.Join(dir, "train.py")) {
		return "train.py", nil
	}
	names, err := filepath.Glob(filepath.Join(dir, "*.py"))
	if err != nil {
		return "", fmt.Errorf("look for a script: %w", err)
	}
	var found []string
	for _, name := range names {
		if text, err := ReadFile(name, largestFile); err == nil && strings.Contains(string(text), "backward(") {
			found = append(found, filepath.Base(name))
		}
	}
	if len(found) != 1 {
		return "", errext.Errorf("name it, with its arguments: gpurun init train.py",
			"it is not clear which script here trains")
	}
	return found[0], nil
}

// WriteNew writes a file that must not exist yet. The error has a hint if it exists.
func WriteNew(name, text string) error {
	file, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if errors.Is(err, fs.ErrExist) {
		return errext.Errorf("gpurun init --dry-run prints what it would hold; gpurun plan "+commandline.PastePath(
			name)+" shows what it means", "%s is there already, and is not overwritten", name)
	}
	if err != nil {
		return fmt.Errorf("write the job: %w", err)
	}
	_, err = file.WriteString(text)
	if err := errors.Join(err, file.Close()); err != nil {
		return fmt.Errorf("write the job: %w", err)
	}
	return nil
}
