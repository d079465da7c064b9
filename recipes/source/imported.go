package source

import (
	"bytes"
	"slices"
	"strings"
)

// locals are the expressions by which a text without comments can call a module's name,
// such as "transformers.TrainingArguments": what it imports decides.
func locals(text, name string) []string {
	dot := strings.LastIndexByte(name, '.')
	if dot < 0 {
		return []string{name}
	}
	module, member := name[:dot], name[dot+1:]
	var all []string
	for _, i := range Imports(text) {
		for _, n := range i.Names {
			switch whole := i.Module + "." + n.Name; {
			case n.Name == member && (i.Module == module || strings.HasPrefix(i.Module, module+".")):
				all = append(all, n.As) // also out of a submodule
			case strings.HasPrefix(name, whole+"."):
				all = append(all, n.As+name[len(whole):])
			}
		}
		switch {
		case i.Names != nil:
		case i.As != i.Module && strings.HasPrefix(name, i.Module+"."):
			all = append(all, i.As+name[len(i.Module):])
		case i.As == i.Module && top(i.Module) == top(name):
			all = append(all, name)
		}
	}
	return all
}

// top is the package that a module is in.
func top(module string) string {
	first, _, _ := strings.Cut(module, ".")
	return first
}

// families are what is called in place of a name, with the same keywords: its other names
// and what extends it. Of TRL those are missing whose loss depends on who shares a batch.
var families = map[string][]string{
	"transformers.TrainingArguments": {"transformers.Seq2SeqTrainingArguments", "trl.SFTConfig", "trl.DPOConfig", "trl.RewardConfig"},
	"lightning.pytorch.Trainer":      {"lightning.Trainer", "pytorch_lightning.Trainer"},
	"torch.utils.data.DataLoader":    {"torch.utils.data.dataloader.DataLoader"},
}

// CallsOf finds the calls of a module's name ("transformers.TrainingArguments"), or of
// what is of its family, in a text, under the names that its imports give it.
func CallsOf(text []byte, name string) []Call {
	members := append([]string{name}, families[name]...)
	if !slices.ContainsFunc(members, func(m string) bool { return bytes.Contains(text, []byte(m[strings.LastIndexByte(m, '.')+1:])) }) {
		return nil // most modules of a job
	}
	clean := withoutComments(string(text))
	var names []string
	for _, member := range members {
		for _, local := range locals(clean, member) {
			if !slices.Contains(names, local) {
				names = append(names, local)
			}
		}
	}
	if len(names) == 0 {
		return nil
	}
	return callsIn(clean, names)
}

// positions are the keywords that a call can give by their place.
var positions = []string{"output_dir"} // of TrainingArguments

// Given is what a call gives for a keyword; false where it gives nothing. Of a value
// that is no literal, and of a call with **, nothing is known.
func (c Call) Given(keyword string) (Value, bool) {
	if expression, given := c.Keyword[keyword]; given {
		return valueOf(expression), true
	}
	if i := slices.Index(positions, keyword); i >= 0 && i < len(c.Positional) && !strings.HasPrefix(c.Positional[i], "*") {
		return valueOf(c.Positional[i]), true
	}
	for _, part := range c.Positional {
		if strings.HasPrefix(part, "**") {
			return Value{}, true
		}
	}
	return Value{}, false
}
