package format

import (
	"slices"
	"strings"
)

// ScriptCode is the job's own Python files as the reader of scripts parsed them, the script first. It
// is shorter than the list of sources where the reader stopped early, and nil where no
// interpreter could read them: nothing is known of what is missing.
type ScriptCode []CodeFile

// A CodeFile is what one Python file has by itself.
type CodeFile struct {
	Path    string                `json:"path"`
	Failed  string                `json:"failed"` // why it was not parsed: "SyntaxError"
	Calls   []CodeCall            `json:"calls"`  // of classes, and of the few functions that a recipe asks for
	Classes []CodeClass           `json:"classes"`
	Options []ParserOption        `json:"options"`
	Default map[string]Expression `json:"defaults"` // that set_defaults gives, by the argument's name
	// Open: a parser has an argument whose name is computed.
	Open bool `json:"open"`
	// Exact: a parser takes no abbreviations.
	Exact bool `json:"exact"`
	// Aliases are the names of imported things by what the file calls them.
	Aliases  map[string]string `json:"aliases"`
	Reads    bool              `json:"reads"`    // the command line
	Joins    string            `json:"joins"`    // the function by which it joins a process group
	Spawns   string            `json:"spawns"`   // the function that starts ranks
	Pipeline bool              `json:"pipeline"` // it makes a PipelineModule
	Fixed    string            `json:"fixed"`    // the call that certainly makes a model one piece
	Schedule *BatchSchedule    `json:"schedule"`
}

// A CodeCall is one call in the job's code.
type CodeCall struct {
	Name string `json:"name"` // as it is written: "tf.TrainingArguments"
	// Whole are the names that the file's imports can give it.
	Whole      []string              `json:"whole"`
	Line       int                   `json:"line"`
	Positional []Expression          `json:"positional"`
	Keyword    map[string]Expression `json:"keyword"`
}

// An Expression is an expression in the job's code, or the default of an argument.
type Expression struct {
	// Text is a literal, without its quotes.
	Text string `json:"text"`
	// Known: it is a literal, and not computed.
	Known bool `json:"known"`
	// None: it is the literal None.
	None bool `json:"none"`
	// Code is the expression as it is written; empty for a default.
	Code string `json:"code"`
}

// A CodeClass is one of the job's own.
type CodeClass struct {
	Name    string                `json:"name"`
	Bases   []string              `json:"bases"` // by their last names
	Fields  map[string]Expression `json:"fields"`
	Forward int                   `json:"forward"` // arguments that its forward requires
}

// A ParserOption is an argument that a call adds to a parser.
type ParserOption struct {
	Names   []string   `json:"names"`
	Default Expression `json:"default"`
}

// A BatchSchedule is a learning rate's, whose length code counts in batches of a loader.
type BatchSchedule struct {
	Name string `json:"name"` // what is called: "OneCycleLR"
	Line int    `json:"line"`
	Text string `json:"text"` // the argument that counts: "steps_per_epoch=len(loader)"
}

// families are what is called in place of a name, with the same keywords: its other names
// and what extends it. Of TRL those are missing whose loss depends on who shares a batch.
var families = map[string][]string{
	"transformers.TrainingArguments": {"transformers.Seq2SeqTrainingArguments", "trl.SFTConfig", "trl.DPOConfig", "trl.RewardConfig"},
	"lightning.pytorch.Trainer":      {"lightning.Trainer", "pytorch_lightning.Trainer"},
	"torch.utils.data.DataLoader":    {"torch.utils.data.dataloader.DataLoader"},
}

// CallsOf lists the calls of a module's name ("transformers.TrainingArguments"), or of what is
// of its family, under the names that the imports give it.
func (c ScriptCode) CallsOf(name string) []CodeCall {
	members := append([]string{name}, families[name]...)
	return c.calls(func(call CodeCall) bool {
		return slices.ContainsFunc(call.Whole, func(whole string) bool {
			return slices.ContainsFunc(members, func(member string) bool { return sameName(whole, member) })
		})
	})
}

// sameName reports whether a whole name is another's: also out of a submodule.
func sameName(whole, name string) bool {
	dot := strings.LastIndexByte(name, '.')
	return whole == name || dot >= 0 && strings.HasSuffix(whole, name[dot:]) && strings.HasPrefix(whole, name[:dot+1])
}

// Calls lists the calls of functions by their names as they are written, such as
// "deepspeed.initialize".
func (c ScriptCode) Calls(names ...string) []CodeCall {
	return c.calls(func(call CodeCall) bool { return slices.Contains(names, call.Name) })
}

func (c ScriptCode) calls(wanted func(CodeCall) bool) (found []CodeCall) {
	for _, file := range c {
		for _, call := range file.Calls {
			if wanted(call) {
				found = append(found, call)
			}
		}
	}
	return found
}

// positions are the keywords that a call can give by their place.
var positions = []string{"output_dir"} // of TrainingArguments

// Given is what a call gives for a keyword; false where it gives nothing. Of a value
// that is no literal, and of a call with **, nothing is known.
func (c CodeCall) Given(keyword string) (Expression, bool) {
	if v, given := c.Keyword[keyword]; given {
		return v, true
	}
	if i := slices.Index(positions, keyword); i >= 0 && i < len(c.Positional) && !strings.HasPrefix(c.Positional[i].Code, "*") {
		return c.Positional[i], true
	}
	return Expression{}, slices.ContainsFunc(c.Positional, func(v Expression) bool { return strings.HasPrefix(v.Code, "**") })
}

// Roots are the classes from outside the sources that a class of that name extends,
// directly or through others: itself, where the sources have none of that name. One
// that extends a class of its own name extends that of another package. object and ABC
// are none.
func (c ScriptCode) Roots(name string) []string {
	var roots []string
	c.follow(name, nil, map[string]bool{}, func(root string) {
		if !slices.Contains(roots, root) {
			roots = append(roots, root)
		}
	})
	return roots
}

// follow calls found with each root that is reached from a name, past the classes
// that were gone through to it. Each is followed once: done are those that were.
func (c ScriptCode) follow(name string, past []string, done map[string]bool, found func(string)) {
	switch {
	case slices.Contains(past, name):
		found(name)
		return
	case done[name]:
		return
	}
	done[name] = true
	beyond := append(slices.Clip(past), name)
	defined, alias := false, ""
	for _, file := range c {
		if alias == "" {
			alias = file.Aliases[name]
		}
		for _, class := range file.Classes {
			if class.Name != name {
				continue
			}
			defined = true
			for _, base := range class.Bases {
				if base != "object" && base != "ABC" && base != "Protocol" {
					c.follow(base, beyond, done, found)
				}
			}
		}
	}
	switch {
	case defined:
	case alias != "" && !slices.Contains(beyond, alias):
		c.follow(alias, beyond, done, found)
	default:
		found(name)
	}
}
