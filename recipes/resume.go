package recipes

import (
	"bytes"
	"fmt"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/gpurun/gpurun/launcher/lazy"
	"github.com/gpurun/gpurun/recipes/format"
	"github.com/gpurun/gpurun/strategy"
)

// inBraces matches {--output_dir}, {--output_dir|out} and {name}.
var inBraces = lazy.Regexp(`\{(-{0,2}[^{}|]+)(\|[^{}]*)?\}`)

// ResumeGlob is the glob of complete checkpoints, with the command's own values filled in. It is
// false if the recipe has none, or if the command does not give an argument that the glob needs.
func (r Recipe) ResumeGlob(cmd Command) (glob string, ok bool) {
	d := format.NewDraft(r.Recipe, cmd)
	glob, known := filled(d, r.Resume.Latest)
	return glob, known && glob != "" && !r.cannotResume(d)
}

// cannotResume reports whether the job's parser has none of the arguments that resume, or whether
// its code puts the checkpoints elsewhere.
func (r Recipe) cannotResume(d *format.Draft) bool {
	switch {
	case r.Resume.Own:
		return false
	case slices.ContainsFunc(r.Resume.Elsewhere, func(p format.Place) bool { return p.SetInCode(d) }),
		slices.Contains(r.Rules, "trainer-arguments") && neverResumes(d.Original.Script),
		slices.Contains(r.Resume.Needs, acceleratorState) && neverSaves(d.Original.Script),
		strings.Contains(r.Resume.Latest, lightningLogs) && movesLogs(d),
		// its parser would refuse the argument
		r.Name == "lightning-script" && len(d.Original.Script) > 0 && !mentions(d.Original, "ckpt_path"):
		return true
	}
	return slices.ContainsFunc(format.OptionsOf(r.Resume.Args),
		func(o format.WordOption) bool { return !o.Override && d.Lacks(o.Name) != "" })
}

// neverResumes reports whether a script calls the Trainer's train, but hands no checkpoint to it: the
// Trainer itself does not use resume_from_checkpoint of its arguments (transformers/training_args.py).
func neverResumes(script []byte) bool {
	return bytes.Contains(script, []byte(".train(")) && !bytes.Contains(script, []byte("resume_from_checkpoint")) &&
		!bytes.Contains(script, []byte("get_last_checkpoint"))
}

// acceleratorState is a file that only Accelerator.save_state writes.
const acceleratorState = "random_states_0.pkl"

// neverSaves reports whether a script of Accelerate neither saves its state nor reads one, or has it in folders of
// other names than step_100 and epoch_2.
func neverSaves(script []byte) bool {
	has := func(words ...string) bool {
		return slices.ContainsFunc(words, func(word string) bool { return bytes.Contains(script, []byte(word)) })
	}
	return len(script) > 0 && (!has("save_state", "load_state", "resume") || has("checkpoint-") &&
		!has("step_{", "epoch_{"))
}

// lightningLogs is the folder of Lightning's checkpoints below its root.
const lightningLogs = "lightning_logs"

// Settings that put Lightning's checkpoints elsewhere: in a configuration file, and in a call that takes the other
// arguments from the command.
var (
	movesInFile = lazy.Regexp(`(?m)^[ \t-]*(?:default_root_dir|dirpath|save_dir)[ \t]*:[ \t]*(?:[^\sn~#]|n[^u])|\bWandbLogger\b|save_weights_only:[ \t]*true`)
	movesInCall = lazy.Regexp(`(?s)from_argparse_args\(.{0,400}?\b(?:default_root_dir|logger)\s*=|\.default_root_dir\s*=[^=]|@hydra\.main\(|\bWandbLogger\(|["']trainer\.(?:logger|default_root_dir)["']|default_config_files|\bsave_weights_only\s*=\s*True|\bdirpath["']?\s*[:=]`)
)

// movesLogs reports whether a job of Lightning has its checkpoints in another folder than by default: Hydra starts it
// in a new one.
func movesLogs(d *format.Draft) bool {
	for _, text := range d.Original.Files {
		if movesInFile().Match(text) {
			return true
		}
	}
	logger := func(word string) bool {
		return strings.HasPrefix(word, "--trainer.logger") || strings.HasPrefix(word, "--trainer.callbacks")
	}
	return slices.ContainsFunc(d.Original.Argv, logger) || slices.ContainsFunc(d.Original.Sources(), movesInCall().Match)
}

// Pointer is the file that names the newest checkpoint; empty if the framework writes none.
func (r Recipe) Pointer(cmd Command) string {
	d := format.NewDraft(r.Recipe, cmd)
	file, known := filled(d, r.Resume.Pointer)
	if !known || r.cannotResume(d) {
		return ""
	}
	return file
}

// pointerText matches the place for the text of the pointer.
var pointerText = lazy.Regexp(`\{pointer(?::(\d+))?\}`)

// PointedAt returns the checkpoint that the text of the pointer file names; false if it names
// none, for example with a word in place of a number.
func (r Recipe) PointedAt(cmd Command, text string) (checkpoint string, ok bool) {
	text = strings.TrimSpace(text)
	if r.Resume.Pointed == "" {
		return text, text != ""
	}
	parts := pointerText().FindStringSubmatch(r.Resume.Pointed)
	if parts == nil {
		return "", false
	}
	if parts[1] != "" {
		n, err := strconv.ParseUint(text, 10, 64)
		if err != nil {
			return "", false
		}
		text = fmt.Sprintf("%0"+parts[1]+"d", n)
	}
	return filled(format.NewDraft(r.Recipe, cmd), strings.Replace(r.Resume.Pointed, parts[0], text, 1))
}

// FollowsPointer reports whether the framework itself resumes from the checkpoint in its pointer
// file, so that without one there is nothing to resume from.
func (r Recipe) FollowsPointer() bool {
	return r.Resume.Pointer != "" && !slices.ContainsFunc(r.Resume.Args,
		func(word string) bool { return strings.Contains(word, "{latest}") })
}

// filled replaces {--x}, {--x|default} and {name} in a text by the command's values; false if one
// has neither a value nor a default. {latest} and {job} stay.
func filled(d *format.Draft, text string) (string, bool) {
	ok := true
	filled := inBraces().ReplaceAllStringFunc(text, func(match string) string {
		m := inBraces().FindStringSubmatch(match)
		if m[1] == "latest" || m[1] == "job" || strings.HasPrefix(m[1], "pointer") {
			return match
		}
		value, given := "", false
		if strings.HasPrefix(m[1], "-") {
			value, given = d.Argument(m[1])
		} else {
			value, given = resumeValue(d, m[1])
		}
		switch {
		case given:
			return value
		case m[2] != "":
			return m[2][1:]
		}
		ok = false
		return match
	})
	return filled, ok
}

// resumeValue is one of the recipe's [resume.values].
func resumeValue(d *format.Draft, name string) (string, bool) {
	for _, p := range d.Existing(d.Recipe.Resume.Values[name]) {
		switch word, found, err := p.Read(d); {
		case err == nil && found && word != nil:
			return fmt.Sprint(word), true
		case err != nil && p.SetInCode(d):
			return "", false // the code computes it
		}
	}
	value, given := d.Recipe.Resume.Defaults[name]
	return value, given
}

// Pinned returns the words that keep all attempts in one folder and that the command does not
// have; job is a name of the run.
func (r Recipe) Pinned(cmd Command, job string) []string {
	d := format.NewDraft(r.Recipe, cmd)
	var words []string
	for _, o := range format.OptionsOf(r.Resume.Pin) {
		value := strings.ReplaceAll(o.Value, "{job}", job)
		switch {
		case o.Override:
			if !d.HasOverride(o.Name) {
				if under := r.Under(); under != "" && !slices.Contains(words, under) {
					words = append(words, under)
				}
				words = append(words, o.Name+"="+value)
			}
		case d.HasWord(o.Name) || d.Lacks(o.Name) != "":
		case o.Bare:
			words = append(words, o.Name)
		case r.Grammar.Equals:
			words = append(words, o.Name+"="+value)
		default:
			words = append(words, o.Name, value)
		}
	}
	return words
}

// ResumeFiles lists the files of a checkpoint that must be in cmd.Files before ResumeFrom. A file
// that does not exist is omitted.
func (r Recipe) ResumeFiles(checkpoint string) []string {
	var files []string
	for _, name := range r.Rules {
		for file := range rules[name].Checkpoint {
			files = append(files, path.Join(checkpoint, file))
		}
	}
	slices.Sort(files)
	return files
}

// ResumeFrom returns a change made by Apply with the checkpoint added to its command line. If the
// checkpoint itself has a setting that the plan changes, the command names a copy of the
// checkpoint under dir. Its other files are linked next to the changed one, by Siblings.
func (r Recipe) ResumeFrom(change strategy.Command, cmd Command, plan strategy.Plan, checkpoint,
	dir string) (strategy.Command, error) {
	next := change
	next.Files, next.Siblings = map[string][]byte{}, map[string]string{}
	maps.Copy(next.Files, change.Files)
	maps.Copy(next.Siblings, change.Siblings)
	edited, err := r.editCheckpoint(&next, cmd, plan, checkpoint)
	if err != nil {
		return strategy.Command{}, err
	}
	if edited != nil {
		checkpoint = path.Join(dir, checkpointCopy(checkpoint))
	}
	next.Diff = string(edited) + change.Diff
	words := make([]string, len(r.Resume.Args))
	for i, word := range r.Resume.Args {
		text, known := filled(format.NewDraft(r.Recipe, cmd), word)
		if !known {
			return strategy.Command{}, fmt.Errorf("resume with %s: the command has no value for it", word)
		}
		words[i] = strings.ReplaceAll(text, "{latest}", checkpoint)
	}
	d := format.NewDraft(r.Recipe, cmd)
	if err := d.Resume(&next, format.OptionsOf(words), dir); err != nil {
		return strategy.Command{}, err
	}
	for _, s := range r.Resume.Also {
		value := strings.ReplaceAll(fmt.Sprint(s.Value), "{latest}", checkpoint)
		if err := s.Place.Put(d, value, false); err != nil {
			return strategy.Command{}, fmt.Errorf("resume with %s: %w", s.Place, err)
		}
	}
	next.Calls = slices.Concat(change.Calls, d.Calls)
	return next, nil
}

// checkpointCopy is the folder for the copy of a checkpoint.
func checkpointCopy(checkpoint string) string { return path.Join("checkpoint", path.Base(checkpoint)) }

// editCheckpoint adds changed copies of a checkpoint's files, and returns their diff; nil if no
// change is needed.
func (r Recipe) editCheckpoint(
	next *strategy.Command, cmd Command, plan strategy.Plan, checkpoint string,
) ([]byte, error) {
	var edited []byte
	if micro, known := plan.Number(strategy.MicroBatchSize); known {
		plan = plan.With(strategy.Plan{strategy.MicroBatchSize: strategy.Number(micro * spread(r.Recipe, cmd))})
	}
	folder := checkpointCopy(checkpoint)
	for _, name := range r.Rules {
		for file, edit := range rules[name].Checkpoint {
			from := path.Join(checkpoint, file)
			text, loaded := cmd.Files[from]
			if !loaded {
				continue
			}
			changed, err := edit(text, plan)
			if err != nil {
				return nil, fmt.Errorf("change %s: %w", from, err)
			}
			if string(changed) == string(text) {
				continue
			}
			to := path.Join(folder, file)
			next.Files[to], next.Siblings[folder] = changed, checkpoint
			edited = append(edited, format.Unified(from, text, to, changed)...)
		}
	}
	return edited, nil
}

// Tracked returns the variables with which all attempts continue one run of an experiment
// tracker; name is the name of that run. A tracker is left to the user if the command's
// environment has one of its variables. A variable whose value the command does not have is
// omitted.
func (r Recipe) Tracked(cmd Command, name string) map[string]string {
	d, taken, all := format.NewDraft(r.Recipe, cmd), map[string]bool{}, map[string]string{}
	for variable := range r.Resume.Env {
		if _, set := cmd.Env[variable]; set {
			taken[tracker(variable)] = true
		}
	}
	for variable, text := range r.Resume.Env {
		if value, known := filled(d, text); known && !taken[tracker(variable)] {
			all[variable] = strings.ReplaceAll(value, "{job}", name)
		}
	}
	return all
}

// tracker returns the tracker of a variable: WANDB for WANDB_RUN_ID and WANDB_RESUME.
func tracker(variable string) string {
	prefix, _, _ := strings.Cut(variable, "_")
	return prefix
}
