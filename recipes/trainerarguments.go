package recipes

import (
	"regexp"
	"slices"
	"strings"

	"github.com/gpurun/gpurun/recipes/format"
	"github.com/gpurun/gpurun/recipes/source"
)

// trainerArguments is the rule for jobs that read TrainingArguments with
// HfArgumentParser. The parser reads any dataclass: one that is given none of
// TrainingArguments has arguments of other meanings under the same names.
var trainerArguments = format.Rule{Shape: func(r *format.Recipe) { r.Detection.Not = noTrainerArguments }}

// className matches a class where it is named: TrainingArguments, transformers.X.
var className = regexp.MustCompile(`^[A-Za-z_][\w.]*$`)

// noTrainerArguments is why a command's parser reads no training arguments, empty
// where it does, or where its source is not known.
func noTrainerArguments(cmd Command) string {
	if cmd.Script == nil {
		return ""
	}
	texts := cmd.Sources()
	const reason = "HfArgumentParser reads no TrainingArguments"
	mentioned := slices.ContainsFunc(texts, func(text []byte) bool { return strings.Contains(string(text), "TrainingArguments") })
	if !mentioned {
		return reason
	}
	told := false
	for _, text := range texts {
		for _, call := range source.Calls(text, "HfArgumentParser", "transformers.HfArgumentParser") {
			names, known := parsed(call)
			if !known || slices.ContainsFunc(names, func(name string) bool { return source.MayExtend(name, texts...) }) {
				return "" // what is not known may be
			}
			told = true
		}
	}
	if told {
		return reason
	}
	return ""
}

// parsed are the classes that a parser is made of; false where they are computed.
func parsed(call source.Call) (names []string, known bool) {
	given := call.Keyword["dataclass_types"]
	if given == "" && len(call.Positional) > 0 {
		given = call.Positional[0]
	}
	bare := strings.Trim(given, "()[] \n\t")
	if bare == given && strings.ToUpper(given[:min(1, len(given))]) != given[:min(1, len(given))] {
		return nil, false // a variable
	}
	for name := range strings.SplitSeq(bare, ",") {
		name = strings.TrimSpace(name)
		switch {
		case name == "":
		case !className.MatchString(name):
			return nil, false
		default:
			names = append(names, name[strings.LastIndexByte(name, '.')+1:])
		}
	}
	return names, len(names) > 0
}
