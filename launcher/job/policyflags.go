package job

import (
	"slices"
	"strconv"
	"strings"

	"github.com/gpurun/gpurun/launcher/errext"
	"github.com/gpurun/gpurun/recipes/document"
)

// takePolicy puts what flags say of the policy over what files say. Errors have hints.
func (j *Job) takePolicy(own Own) error {
	r := &j.Recovery
	if err := flagWord("--mode", own.Mode, modes, &r.Mode); err != nil {
		return err
	}
	if err := flagWord("--numerics", own.Numerics, numerics, &r.Numerics); err != nil {
		return err
	}
	j.NumericsSaid = j.NumericsSaid || own.Numerics != ""
	if own.MaxAttempts != "" {
		n, err := strconv.Atoi(own.MaxAttempts)
		if err != nil || n < 1 || n > many {
			return errext.Errorf("write a number from 1", "--max-attempts: %q is no number of attempts", own.MaxAttempts)
		}
		r.MaxAttempts = n
	}
	if own.Never != "" {
		r.Never = nil
		for name := range strings.SplitSeq(own.Never, ",") {
			if name = strings.TrimSpace(name); !slices.Contains(barrable(), name) {
				return errext.Errorf(meantBy(name, barrable(), "gpurun plan lists the rungs, docs/recovery.md the knobs"), "--never: %q is neither a rung nor a knob", name)
			}
			r.Never = append(r.Never, name)
		}
	}
	if own.DeviceMemory != "" {
		bytes, err := ParseSize(own.DeviceMemory)
		if err != nil {
			return errext.Errorf("write a size such as 24GiB", "--device-memory: %w", err)
		}
		j.Limits.DeviceMemory = bytes
	}
	return nil
}

// flagWord reads a flag whose value is one of a few words.
func flagWord(flag, given string, among []string, into *string) error {
	if given == "" {
		return nil
	}
	if !slices.Contains(among, given) {
		return errext.Errorf(meantBy(given, among, "write "+document.Either(among)), "%s: unknown value %q", flag, given)
	}
	*into = given
	return nil
}

// meantBy is a guess at what was meant, or another hint where there is none.
func meantBy(given string, among []string, otherwise string) string {
	if meant := Nearest(given, among); meant != "" {
		return "did you mean " + meant + "?"
	}
	return otherwise
}
