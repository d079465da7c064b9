package job

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/gpurun/gpurun/launcher/errext"
	"github.com/gpurun/gpurun/launcher/lazy"
	"github.com/gpurun/gpurun/recipes/edit"
	"github.com/gpurun/gpurun/strategy"
)

// modes, prefers and numerics are the allowed words of the policy.
var (
	modes    = []string{string(strategy.Predict), string(strategy.Ladder), string(strategy.Off)}
	prefers  = []string{string(strategy.ExactFirst), string(strategy.Speed), string(strategy.Tree)}
	numerics = []string{string(strategy.Preserve), string(strategy.MixedPrecision), string(strategy.Any)}
)

// readRecovery reads [recovery].
func (r *reader) readRecovery() {
	t := r.readKeys("recovery")
	r.job.Policy.NumericsSaid = r.job.Policy.NumericsSaid || t.Has("numerics")
	r.checkNever(t)
	r.readExitCodes(t)
}

// readExitCodes reads recovery.exit_codes.
func (r *reader) readExitCodes(t *fileTable) {
	value, _ := t.Get("exit_codes")
	table, isTable := value.(map[string]any)
	if value != nil && !isTable {
		t.Bad("exit_codes", "is not a table of exit codes, such as %s", Said("recovery", "exit_codes").Example)
	}
	for _, code := range slices.Sorted(maps.Keys(table)) {
		path := []string{"recovery", "exit_codes", code}
		answer, _ := table[code].(string)
		switch n, err := strconv.Atoi(code); {
		case err != nil || n < 1 || n > 255 || strconv.Itoa(n) != code:
			r.problems = append(r.problems, Problem{Key: path,
				Message: fmt.Sprintf("%q is no exit code, which is a number from 1 to 255", code)})
		case !slices.Contains(strategy.ExitAnswers, answer):
			r.problems = append(r.problems, Problem{Key: path, AtValue: true, Suggest: Nearest(answer, strategy.ExitAnswers),
				Message: fmt.Sprintf("unknown value, want %s", edit.Either(strategy.ExitAnswers))})
		default:
			if r.job.Policy.ExitCodes == nil {
				r.job.Policy.ExitCodes = map[string]strategy.ExitAnswer{}
			}
			r.job.Policy.ExitCodes[code] = strategy.ExitAnswer(answer)
		}
	}
}

// checkNever reports words in recovery.never that exclude nothing.
func (r *reader) checkNever(t *fileTable) {
	barred := barrable()
	value, _ := t.Get("never")
	array, _ := value.([]any)
	for i, e := range array {
		if name, isText := e.(string); isText && !slices.Contains(barred, name) {
			r.problems = append(r.problems, Problem{
				Key: []string{"recovery", "never", strconv.Itoa(i)}, AtValue: true,
				Message: fmt.Sprintf("%q is neither a remedy nor a knob", name), Suggest: Nearest(name, barred),
			})
		}
	}
}

// barrable lists the words that recovery.never may have.
func barrable() []string {
	var names []string
	for _, remedy := range slices.Concat(strategy.DeviceRemedies, strategy.HostRemedies) {
		names = append(names, string(remedy))
	}
	for _, knob := range strategy.Knobs {
		if !slices.Contains(names, string(knob)) { // precision is a knob and a remedy
			names = append(names, string(knob))
		}
	}
	return names
}

// takePolicy overrides the policy of files with that of flags. Errors have hints.
func (j *Job) takePolicy(own Own) error {
	r := &j.Policy
	if err := flagWord("--mode", own.Mode, modes, &r.Mode); err != nil {
		return err
	}
	if err := flagWord("--numerics", own.Numerics, numerics, &r.Numerics); err != nil {
		return err
	}
	r.NumericsSaid = r.NumericsSaid || own.Numerics != ""
	r.InPlace = r.InPlace && !own.NotInPlace
	if own.MaxAttempts != "" {
		n, err := strconv.Atoi(own.MaxAttempts)
		if err != nil || n < 1 || n > many {
			return errext.Errorf("write a number from 1", "--max-attempts: %q is not a number of attempts", own.MaxAttempts)
		}
		r.MaxAttempts = n
	}
	if own.Never != "" {
		r.Never = nil
		for name := range strings.SplitSeq(own.Never, ",") {
			if name = strings.TrimSpace(name); !slices.Contains(barrable(), name) {
				return errext.Errorf(meantBy(name, barrable(), "gpurun plan lists the remedies, docs/recovery.md the knobs"),
					"--never: %q is neither a remedy nor a knob", name)
			}
			r.Never = append(r.Never, name)
		}
	}
	if own.DeviceMemory != "" {
		bytes, err := ParseSize(own.DeviceMemory)
		if err != nil {
			return errext.Errorf("write a size such as 24GiB", "--device-memory: %w", err)
		}
		j.DeviceMemory = bytes
	}
	return nil
}

// flagWord reads a flag whose value must be one of a few words.
func flagWord[T ~string](flag, given string, among []string, into *T) error {
	if given == "" {
		return nil
	}
	if !slices.Contains(among, given) {
		return errext.Errorf(meantBy(given, among, "write "+edit.Either(among)), "%s: unknown value %q", flag, given)
	}
	*into = T(given)
	return nil
}

// meantBy returns a guess at the word that was meant, or otherwise if there is none.
func meantBy(given string, among []string, otherwise string) string {
	if meant := Nearest(given, among); meant != "" {
		return "did you mean " + meant + "?"
	}
	return otherwise
}

// runID matches a valid run id: a folder name on every file system, and not a hidden one.
var runID = lazy.Regexp(`^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$`)

// ifTrained are the values of --if-trained.
var ifTrained = []string{"skip", "run"}

// filled are the flags of pipelines that must not be empty. An empty value, which may come from an unset
// variable of the pipeline, would count as not given.
var filled = []string{"run-id", "if-trained", "deadline", "junit"}

// checkPipeline checks the flags by which pipelines select a run. set has the given flags. The error has a
// hint.
func checkPipeline(own Own, set map[string]string) error {
	values := map[string]string{"run-id": own.RunID, "if-trained": own.IfTrained, "deadline": own.Deadline,
		"junit": own.JUnit}
	for _, name := range filled {
		if _, there := set[name]; there && values[name] == "" {
			return errext.Errorf("leave the flag out, or see whether the variable that it comes from is set", "--%s is empty",
				name)
		}
	}
	switch {
	case own.RunID != "" && own.RunDir != "":
		return errext.Errorf("keep one of them", "--run-id and --run-dir both name the run directory")
	case own.RunID != "" && !runID().MatchString(own.RunID):
		return errext.Errorf(`write up to 64 letters, digits, ".", "_" and "-", the first of them a letter or a digit`,
			"--run-id: %q cannot name a run", own.RunID)
	case own.IfTrained != "" && !slices.Contains(ifTrained, own.IfTrained):
		return errext.Errorf(meantBy(own.IfTrained, ifTrained, "write "+edit.Either(ifTrained)),
			"--if-trained: unknown value %q", own.IfTrained)
	}
	return nil
}
