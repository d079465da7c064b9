package job

import (
	"cmp"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/gpurun/gpurun/launcher/commandline"
	"github.com/gpurun/gpurun/launcher/mask"
	"github.com/gpurun/gpurun/recipes/edit"
	"github.com/gpurun/gpurun/recipes/format"
	"github.com/gpurun/gpurun/strategy"
)

// A NextWriter writes next steps in the words of a job, for a run in Dir that was started with the arguments
// Typed in the folder From.
type NextWriter struct {
	*Prepared
	Typed     []string
	Dir, From string
	Mask      *mask.Masker
	// Keep writes the nth diff, from 0, into the run directory, and returns its path.
	Keep func(n int, diff string) (path string, err error)

	kept []string // the diffs so far
}

// Write makes the command and the diff of a step; see launcher.Adviser.
func (w *NextWriter) Write(step strategy.NextStep, log strategy.LogPlace) (next strategy.Advice, ok bool) {
	if next, ok = w.write(step, log); !ok || next.Diff == "" {
		return next, ok
	}
	if !slices.Contains(w.kept, next.Diff) {
		w.kept = append(w.kept, next.Diff)
	}
	file, err := w.Keep(slices.Index(w.kept, next.Diff), next.Diff)
	if err != nil {
		return next, false
	}
	next.Command = "git apply " + w.path(file) + " && " + cmp.Or(next.Command, w.start())
	return next, true
}

func (w *NextWriter) write(step strategy.NextStep, log strategy.LogPlace) (next strategy.Advice, ok bool) {
	next = strategy.Advice{Kind: step.Kind, Reason: w.asTyped(step.Reason)}
	switch step.Kind {
	case strategy.NextHardware:
		return next, true
	case strategy.NextInspect:
		if step.Init {
			next.Command = w.draft()
			return next, next.Command != ""
		}
		if next.Command = w.inspect(log); step.Module && w.Python() != "" {
			next.Reason = fmt.Sprintf("the job ran with %s: install the module there, or %s", w.Python(), w.otherPython())
		}
		return next, true
	case strategy.NextResume:
		if step.Checkpoint == "" {
			next.Command = "gpurun resume " + w.path(w.Dir)
			if requeue := w.Where.Requeue(); requeue != "" { // typed on a login node, resume would train there
				next.Reason += "; within a job, so does " + next.Command
				next.Command = requeue
			}
			return next, true
		}
	case strategy.NextPolicy:
		value, refused := w.Job.allowed(step.Setting, step.Value)
		if refused != "" {
			next.Kind, next.Reason, next.Command = strategy.NextInspect, "the site's configuration allows no more: "+refused, w.inspect(log)
			return next, true
		}
		step.Value = value
		next.Command, next.Diff = w.policy(step)
		return next, next.Command != "" || next.Diff != ""
	case strategy.NextRun:
		if step.Plan == nil {
			if next.Command = w.again(); len(step.Missing) > 0 {
				next.Command = w.completed(step.Missing)
			}
			return next, next.Command != ""
		}
	}
	next.Command, next.Diff = w.planned(w.Prepared, step)
	if next.Diff != "" && step.Kind == strategy.NextRun {
		next.Kind = strategy.NextPatch
	}
	return next, next.Command != "" || next.Diff != ""
}

// asTyped names files from where the user is, and the flag in place of the key if the user typed the flag.
func (w *NextWriter) asTyped(reason string) string {
	reason = strings.ReplaceAll(reason, w.From+string(filepath.Separator), "")
	const key, flag = strategy.SettingCeiling, "--device-memory"
	if slices.ContainsFunc(w.Typed, func(word string) bool { return word == flag || strings.HasPrefix(word, flag+"=") }) {
		return strings.ReplaceAll(reason, key, flag)
	}
	return reason
}

// path is a path as short as it can be typed in From.
func (w *NextWriter) path(path string) string {
	if rel, err := filepath.Rel(w.From, path); err == nil && !strings.HasPrefix(rel, "..") {
		path = rel
	}
	return commandline.PastePath(path)
}

// The lines of a log that are shown before and after the failure.
const linesBefore, linesAfter = 20, 5

// inspect is the command that shows the failure in the log.
func (w *NextWriter) inspect(log strategy.LogPlace) string {
	attempt := filepath.Join(w.Dir, fmt.Sprintf("attempt-%d", log.Attempt))
	name := filepath.Join(fmt.Sprintf("rank%d", log.Rank), log.Stream+".log")
	path := filepath.Join(attempt, name)
	if others, err := filepath.Glob(filepath.Join(attempt, "node-*", name)); !exists(path) && err == nil &&
		len(others) > 0 {
		path = others[0]
	}
	text, err := ReadFile(path, largestFile)
	switch lines := strings.Count(string(text), "\n"); {
	case err != nil: // no rank was started
		return "gpurun explain " + w.path(w.Dir)
	case len(text) == 0:
		return "gpurun logs " + w.path(w.Dir)
	case log.Line < 1 || log.Line > lines:
		return fmt.Sprintf("tail -n %d %s", linesBefore, w.path(path))
	}
	return fmt.Sprintf("sed -n '%d,%dp' %s", max(log.Line-linesBefore, 1), log.Line+linesAfter, w.path(path))
}

// draft is the command that shows the settings of the job; empty if it would show none.
func (w *NextWriter) draft() string {
	if _, err := w.Draft(nil); err != nil {
		return ""
	}
	return w.gpurun([]string{"init", "--dry-run", "--from", w.path(w.Dir)})
}

// otherPython is how to select the environment that has a module.
func (w *NextWriter) otherPython() string {
	switch by := w.Job.PythonBy(); by {
	case "command":
		return "write the python of the environment that has it into the command"
	case "--python", "":
		return "activate the environment that has it, or name its interpreter with --python"
	default:
		return fmt.Sprintf("name the interpreter of the environment that has it in %s", by)
	}
}

// shown reports whether words can be printed as they are: without a secret, on one line.
func (w *NextWriter) shown(words []string) bool {
	return !slices.ContainsFunc(words, func(word string) bool { return strings.ContainsAny(word, "\n\r\x1b") }) &&
		slices.Equal(w.Mask.Words(words), words)
}

// gpurun is a command of gpurun; empty if it cannot be printed.
func (w *NextWriter) gpurun(args []string) string {
	if !w.shown(args) {
		return ""
	}
	return commandline.Paste(append([]string{"gpurun"}, args...)...)
}

// resumed is the command that starts the job of the run again, in a new run, with an option for gpurun.
func (w *NextWriter) resumed(option ...string) string {
	return commandline.Paste(slices.Concat([]string{"gpurun", "resume", "--fresh"}, option)...) + " " + w.path(w.Dir)
}

// again is the command that starts the job again.
func (w *NextWriter) again() string {
	line, err := readTorchrun(w.Typed, nil, false)
	switch {
	case err != nil:
		return ""
	case !w.shown(w.Typed):
		return w.resumed()
	case line.Set["run-id"]+line.Set["run-dir"] != "" && !line.Own.Fresh: // a run with a name has ended
		return w.gpurun(append([]string{"--fresh"}, w.Typed...))
	}
	return w.gpurun(w.Typed)
}

// completed is the command with the arguments that the job requires, for the user to fill in.
func (w *NextWriter) completed(missing []string) string {
	if w.Job.Path != "" {
		return ""
	}
	args := commandline.WithOption(w.Typed, "", "")
	for _, name := range missing {
		names := strings.Split(name, "/") // "-c/--config"
		slices.SortStableFunc(names, func(a, b string) int { return strings.Count(b, "-") - strings.Count(a, "-") })
		if strings.HasPrefix(names[0], "-") {
			args = append(args, names[0])
		}
		args = append(args, strings.ToUpper(strings.ReplaceAll(strings.TrimLeft(names[0], "-"), "-", "_")))
	}
	return w.gpurun(args)
}

// policy is the command that starts the job again with another policy, or the diff of the train.toml.
func (w *NextWriter) policy(step strategy.NextStep) (command, diff string) {
	key := step.Setting[strings.LastIndex(step.Setting, ".")+1:]
	option := strings.ReplaceAll(key, "_", "-")
	switch {
	case step.Setting == strategy.SettingLeastBatch:
		return "", w.leastBatch(step.Value)
	case step.Value == "" && w.inFile("recovery", key):
		return "", w.edited("recovery", key, []string{})
	}
	args := commandline.WithOption(w.Typed, option, step.Value)
	if !w.shown(args) {
		if step.Value == "" {
			return "", ""
		}
		return w.resumed("--"+option, step.Value), ""
	}
	return w.gpurun(args), ""
}

// inFile reports whether the job's train.toml has a key.
func (w *NextWriter) inFile(table, key string) bool {
	text, err := os.ReadFile(w.Job.Path)
	if err != nil {
		return false
	}
	_, found, err := edit.Get(edit.TOML, text, edit.Join([]string{table, key}))
	return err == nil && found
}

// edited is the diff of the job's train.toml with another value of a key; empty if it does not have the key, or if
// other values would change.
func (w *NextWriter) edited(table, key string, value any) string {
	if !w.inFile(table, key) {
		return ""
	}
	return w.changed(func(text []byte) ([]byte, error) { return edit.Set(edit.TOML, text, table+"."+key, value) })
}

// start is the command that starts the job in a new run.
func (w *NextWriter) start() string {
	return cmp.Or(w.gpurun(commandline.WithOption(w.Typed, "", "")), w.resumed())
}

// planned is the command that starts a job with the plan of a step, or the diff of the files that have it.
func (w *NextWriter) planned(p *Prepared, step strategy.NextStep) (command, diff string) {
	if p.unpinned != nil {
		p = p.unpinned
	}
	p = p.using(step.Arguments)
	r := p.Resolved
	plan, turned := p.split(step.Plan)
	change, err := r.recipe.Edit(r.command, plan, r.at)
	if err != nil || len(turned)+len(change.Calls) > 0 {
		return "", ""
	}
	if step.Checkpoint != "" {
		if !exists(r.under(step.Checkpoint)) || len(change.Files) > 0 {
			return "", ""
		}
		if change, err = r.recipe.ResumeFrom(change, r.command, plan, step.Checkpoint, w.Dir); err != nil ||
			len(change.Files) > 0 {
			return "", ""
		}
	}
	files, ok := w.filesDiff(r, change.Files)
	if !ok || !w.means(p, change, plan) {
		return "", ""
	}
	command, diff = w.startWith(p, change, plan)
	if command == "" && diff == "" && (files == "" || !slices.Equal(change.Argv, r.command.Argv) || len(change.Env) > 0) {
		return "", ""
	}
	return command, files + diff
}

// filesDiff is the diff of the job's own configuration files; not ok if git cannot apply it here, or if it shows a
// secret.
func (w *NextWriter) filesDiff(r Resolved, files map[string][]byte) (diff string, ok bool) {
	for _, name := range slices.Sorted(maps.Keys(files)) {
		path, err := filepath.Rel(w.From, r.under(name))
		if old := r.command.Files[name]; err != nil || strings.HasPrefix(path, "..") || old == nil {
			return "", false
		} else {
			diff += string(format.Unified("a/"+path, old, "b/"+path, files[name]))
		}
	}
	return diff, w.Mask.Config(diff) == diff
}

// startWith is the command that starts a changed command, or the diff of the train.toml that has it.
func (w *NextWriter) startWith(p *Prepared, change strategy.Command, plan strategy.Plan) (command, diff string) {
	r := p.Resolved
	proposal := r.Job.origin.with(r.Job.Argv, change.Argv)
	switch {
	case proposal.Key == "":
		return w.withVariables(change.Env, cmp.Or(w.gpurun(p.WithoutNumber(proposal.Words)[1:]),
			w.resumedWith(p, change, plan))), ""
	case len(change.Env) > 0 || proposal.NoArgs || !w.shown(proposal.Words):
		return "", ""
	case proposal.Key == "command":
		return "", w.edited("job", proposal.Key, asWritten(proposal))
	}
	return "", w.edited("job", proposal.Key, proposal.Words)
}

// resumedWith is the command that starts the run again with the changed arguments of a command that cannot be
// printed; empty if the job does not read them at its end.
func (w *NextWriter) resumedWith(p *Prepared, change strategy.Command, plan strategy.Plan) string {
	old := p.command.Argv
	var more []string
	for i, word := range change.Argv {
		if i < len(old) && word == old[i] {
			continue
		}
		if option := change.Argv[max(i-1, 0)]; i < len(old) && strings.HasPrefix(option, "-") &&
			!strings.HasPrefix(word, "-") {
			more = append(more, option)
		}
		more = append(more, word)
	}
	change.Argv = slices.Concat(old, more)
	if proposal := p.Resolved.Job.origin.with(p.Resolved.Job.Argv, change.Argv); len(more) == 0 ||
		!slices.Equal(proposal.Words, slices.Concat(p.Resolved.Job.origin.words, more)) || !w.shown(more) ||
		!w.means(p, change, plan) {
		return ""
	}
	return w.resumed() + " -- " + commandline.Paste(more...)
}

// withVariables puts variables in front of a command; empty if one of them is a secret.
func (w *NextWriter) withVariables(env map[string]string, command string) string {
	if command == "" || !maps.Equal(w.Mask.Env(env), env) {
		return ""
	}
	for _, name := range slices.Backward(slices.Sorted(maps.Keys(env))) {
		command = name + "=" + commandline.PasteWord(env[name]) + " " + command
	}
	return command
}

// asWritten is a command with the variables that the user wrote.
func asWritten(p strategy.Proposal) string {
	var line []string
	for i, word := range p.Words {
		if source, written := p.Sources[i]; !written {
			line = append(line, commandline.QuoteWord(word))
		} else if source != "" {
			line = append(line, source)
		}
	}
	return strings.Join(line, " ")
}

// means reports whether a changed command, read again, has the values of a plan.
func (w *NextWriter) means(p *Prepared, change strategy.Command, plan strategy.Plan) bool {
	command := p.command
	command.Argv, command.Env = change.Argv, p.env.With(change.Env)
	if len(change.Files) > 0 {
		command.Files = maps.Clone(command.Files)
		maps.Copy(command.Files, change.Files)
	}
	read, _, err := p.recipe.Read(command, p.at)
	return err == nil && !slices.ContainsFunc(strategy.Knobs, func(k strategy.Knob) bool {
		return plan[k] != "" && plan[k] != p.plan[k] && read[k] != plan[k]
	})
}

// leastBatch is the diff by which the user allows a smaller micro batch: it sets the minimum in the job's train.toml;
// empty if there is none.
func (w *NextWriter) leastBatch(value string) (diff string) {
	least, err := strconv.ParseInt(value, 10, 64)
	if err != nil || w.Job.Path == "" || w.knobs[strategy.MicroBatchSize].Absent != "" {
		return ""
	}
	return w.changed(func(text []byte) ([]byte, error) {
		return edit.Set(edit.TOML, text, edit.Join([]string{"knobs", string(strategy.MicroBatchSize)})+".min", least)
	})
}

// changed is the diff of the job's train.toml after a change; empty if it cannot be changed.
func (w *NextWriter) changed(change func(text []byte) ([]byte, error)) string {
	text, err := os.ReadFile(w.Job.Path)
	if err != nil || w.Job.Path == "" {
		return ""
	}
	next, err := change(text)
	if err != nil {
		return ""
	}
	name, err := filepath.Rel(w.From, w.Job.Path)
	if err != nil || strings.HasPrefix(name, "..") {
		return ""
	}
	return string(format.Unified("a/"+name, text, "b/"+name, next))
}
