package format

import (
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/gpurun/gpurun/launcher/lazy"
	"github.com/gpurun/gpurun/recipes/edit"
	"github.com/gpurun/gpurun/strategy"
)

// argument is { arg = "--batch-size" }: an argument, under one of its names.
type argument struct {
	onCommand
	names spellings // the first is used to append it
	no    string    // the opposite: "--no-pin-memory"
	flag  bool      // it holds a truth value
}

// Argument is the place of an argument that is not a flag.
func Argument(name string) Place { return Place{PlaceKind: argument{names: []string{name}}} }

// spellings are names of one argument.
type spellings []string

// newArgument checks the names of an argument.
func newArgument(n *keyTable, names spellings, no string, p *Place) argument {
	for i, name := range names {
		switch {
		case name == "" || strings.HasPrefix(name, "-"): // an empty name was already reported
		case i == 0:
			n.Report(edit.Problem{Key: n.Path("arg"), Message: "an argument starts with a dash", Suggest: "--" + name})
		default:
			n.fault("arg", "%q is not an argument: it does not start with a dash", name)
		}
	}
	a := argument{names: names, no: no, flag: p.flag()}
	for value, words := range p.Words {
		if a.flag && slices.Contains(words, any(false)) {
			p.Implied = value
		}
	}
	return a
}

func (a argument) String() string { return "argument " + a.names[0] }

// needs names all spellings.
func (a argument) needs() string {
	last := len(a.names) - 1
	if last == 0 {
		return a.String()
	}
	return "argument " + strings.Join(a.names[:last], ", ") + " or " + a.names[last]
}

func (a argument) Present(d *Draft) bool { return d.has(a.names, a.no) }

func (a argument) Read(d *Draft) (any, bool, error) { return d.argument(a.names, a.no, a.flag) }

func (a argument) Write(d *Draft, word any, absence bool) error {
	return d.setArgument(a.names, a.no, word, absence)
}

func (a argument) Arguments() []string {
	return slices.DeleteFunc([]string{a.names[0], a.no}, func(name string) bool { return !startsWithDashes(name) })
}

// spellings returns its names, and that of its opposite.
func (a argument) spellings() []string {
	if a.no == "" {
		return a.names
	}
	return append(slices.Clone(a.names), a.no)
}

// flagged is a kind that can hold a truth value.
type flagged interface{ asFlag() PlaceKind }

func (a argument) asFlag() PlaceKind {
	a.flag = true
	return a
}

// spelling is the name by which the command gives an argument. If there are several, it is the
// last, which counts; without any, it is the argument's first name.
func (d *Draft) spelling(names []string) string {
	best, at := names[0], d.grammar.At(d.Argv, names[0])
	for _, name := range names[1:] {
		if i := d.grammar.At(d.Argv, name); i > at {
			best, at = name, i
		}
	}
	if at < 0 {
		for _, name := range names {
			if d.Lacks(name) == "" {
				return name
			}
		}
	}
	return best
}

// has reports whether an argument, or its opposite, is present.
func (d *Draft) has(names []string, no string) bool {
	if d.all != "" {
		_, found, err := d.argument(names, no, false)
		return found && err == nil
	}
	return d.grammar.Has(d.Argv, d.spelling(names)) || d.grammar.Has(d.Argv, no)
}

// argument returns the value of an argument or of a flag; of several names, the one that counts.
func (d *Draft) argument(names []string, no string, flag bool) (word any, found bool, err error) {
	switch key := identifier(names[0]); {
	case d.all != "" && d.overrides(key):
		word, found = d.grammar.Override(d.Argv, key)
	case d.all != "":
		word, found, err = d.Value(d.all, key)
		found = found && word != nil
	case flag:
		return d.grammar.Flag(d.Argv, d.spelling(names), no)
	default:
		word, found, err = d.grammar.Get(d.Argv, d.spelling(names))
	}
	return word, found, err
}

// overrides reports whether a word overrides a key of the file that has all arguments.
func (d *Draft) overrides(key string) bool { return d.Recipe.Grammar.Overrides && d.HasOverride(key) }

// setArgument changes the value that argument reads. Absence is the job's value without a flag.
func (d *Draft) setArgument(names []string, no string, word any, absence bool) (err error) {
	truth, flag := word.(bool)
	switch key := identifier(names[0]); {
	case d.all != "" && d.overrides(key):
		d.Argv = d.grammar.SetOverride(d.Argv, "", key, fmt.Sprint(word))
	case d.all != "":
		return d.setValue(d.all, key, word)
	case flag:
		d.Argv, err = d.grammar.SetFlag(d.Argv, d.spelling(names), no, truth, absence)
	default:
		d.Argv = d.grammar.Set(d.Argv, d.spelling(names), fmt.Sprint(word))
	}
	return err
}

// removeArgument removes an argument that has a value.
func (d *Draft) removeArgument(name string) error {
	if d.all == "" {
		d.Argv = d.grammar.Remove(d.Argv, name)
		return nil
	}
	word, found, err := d.argument([]string{name}, "", false)
	if err != nil || !found || word == false {
		return err
	}
	return fmt.Errorf("%s cannot be taken out of %s", identifier(name), d.all)
}

// Resume adds arguments to the command of a change whose files are in dir: in place of those that the user gave, or
// in the copy of the file that has all arguments.
func (d *Draft) Resume(change *strategy.Command, options []WordOption, dir string) error {
	if d.all != "" {
		return d.resumeInFile(change, options, dir)
	}
	before, grammar := change.Argv, d.grammar
	argv := slices.Clone(before)
	for _, o := range options {
		switch {
		case o.Override:
			argv = grammar.SetOverride(argv, "", o.Name, o.Value)
		case !strings.HasPrefix(o.Name, "-"):
			argv = grammar.Append(argv, o.Name)
		case !o.Bare:
			argv = grammar.Set(argv, o.Name, o.Value)
		case !grammar.Has(argv, o.Name):
			argv = grammar.Append(argv, o.Name)
		}
	}
	change.Argv = argv
	change.Diff += string(Unified("command", optionLines(before), "resumed command", optionLines(argv)))
	return nil
}

func (d *Draft) resumeInFile(change *strategy.Command, options []WordOption, dir string) (err error) {
	name, text := path.Join("config", path.Base(d.all)), d.Original.Files[d.all]
	for changed, newer := range change.Files {
		if path.Join(dir, changed) == change.Argv[1] {
			name, text = changed, newer
		}
	}
	format, _ := edit.FormatOf(d.all, text)
	next := text
	for _, o := range options {
		value := any(o.Value)
		if o.Bare {
			value = true
		}
		if next, err = edit.Set(format, next, identifier(o.Name), value); err != nil {
			return fmt.Errorf("change %s: %w", d.all, err)
		}
	}
	change.Files[name] = next
	change.Argv = []string{change.Argv[0], path.Join(dir, name)}
	change.Diff += string(Unified(d.all, text, name, next))
	return nil
}

// variable is { env = "BATCH_SIZE" }: an environment variable.
type variable struct {
	onCommand
	name string
}

// Variable is the place of an environment variable.
func Variable(name string) Place { return Place{PlaceKind: variable{name: name}} }

func (v variable) String() string { return "variable " + v.name }

func (v variable) Present(d *Draft) bool {
	_, set := d.Variable(v.name)
	return set
}

// Read treats an empty variable as missing.
func (v variable) Read(d *Draft) (any, bool, error) {
	word, found := d.Variable(v.name)
	return word, found && word != "", nil
}

func (v variable) Write(d *Draft, word any, _ bool) error {
	d.SetVariable(v.name, fmt.Sprint(word))
	return nil
}

// override is { override = "train.batch" }: a word train.batch=8.
type override struct {
	onCommand
	key   string
	under string // the option that overrides follow; empty: any position
}

func (o override) String() string { return "override " + o.key }

func (o override) Read(d *Draft) (any, bool, error) {
	word, found := d.grammar.Override(d.Argv, o.key)
	return word, found, nil
}

func (o override) Write(d *Draft, word any, _ bool) error {
	d.Argv = d.grammar.SetOverride(d.Argv, o.under, o.key, fmt.Sprint(word))
	return nil
}

// leader is the option for Recipe.Under.
func (o override) leader() string { return o.under }

// beginning is { word = "checkpoint:" }: a word like checkpoint:full, which stays at the end of
// the command, after appended arguments.
type beginning struct {
	onCommand
	text string
}

func (b beginning) String() string { return "word " + b.text }

func (b beginning) Read(d *Draft) (any, bool, error) {
	word, found := edit.Beginning(d.Argv, b.text)
	return word, found, nil
}

func (b beginning) Write(d *Draft, word any, _ bool) error {
	d.Argv = edit.SetBeginning(d.Argv, b.text, fmt.Sprint(word))
	return nil
}

// staysLast is the beginning of the words that have to stay at the end.
func (b beginning) staysLast() string { return b.text }

// assigned is { assigned = "batch_size" }: an assignment in a Python file of the command, or in
// the script. It is read, never written.
type assigned struct {
	onCommand
	name string
}

func (a assigned) String() string { return "assignment to " + a.name }

func (a assigned) Read(d *Draft) (any, bool, error) {
	word, found := d.assigned(a.name)
	return word, found, nil
}

func (a assigned) Write(d *Draft, _ any, _ bool) error {
	return fmt.Errorf("%s is Python, which is read and not changed", a)
}

func (a assigned) Files(d *Draft) []string { return d.pythonFiles() }

func (a assigned) Unwritable(*Draft) string {
	return fmt.Sprintf("the %s is Python, which is read and not changed", a)
}

var pythonComment = lazy.Regexp(`(?m)#.*$`)

var assignment = lazy.Regexp(`(?m)^([A-Za-z_]\w*)[ \t]*=[ \t]*([^=\n][^\n]*)$`)

// pythonFiles are the words of the command that are Python files, in order.
func (d *Draft) pythonFiles() []string {
	return slices.DeleteFunc(PlainWords(d.Argv), func(w string) bool { return !strings.HasSuffix(w, ".py") })
}

// assigned is the literal that a Python file of the command line, or the script itself, assigns
// to a name at the top level; the last one counts. Any other expression than a literal or a
// product of whole numbers is not known.
func (d *Draft) assigned(name string) (string, bool) {
	files := d.pythonFiles()
	slices.Reverse(files)
	for _, file := range files {
		if value, found := literal(d.Original.Files[file], name); found {
			return value, value != ""
		}
	}
	value, found := literal(d.Original.Script, name)
	return value, found && value != ""
}

// literal is the last top-level assignment to a name: its text, empty if it is not plain.
func literal(source []byte, name string) (value string, found bool) {
	for _, m := range assignment().FindAllSubmatch(source, -1) {
		if string(m[1]) == name {
			value, found = plainLiteral(strings.TrimSpace(string(pythonComment().ReplaceAll(m[2], nil)))), true
		}
	}
	return value, found
}

// plainLiteral evaluates a number, a product of whole numbers, a truth value or
// a string in quotes.
func plainLiteral(text string) string {
	product := 1
	for factor := range strings.SplitSeq(text, "*") {
		n, err := strconv.Atoi(strings.ReplaceAll(strings.TrimSpace(factor), "_", ""))
		if err != nil {
			product = 0
			break
		}
		product *= n
	}
	switch {
	case product != 0 || text == "0":
		return strconv.Itoa(product)
	case text == "True" || text == "False":
		return text
	case len(text) >= 2 && strings.ContainsAny(text[:1], `'"`) && text[len(text)-1] == text[0] &&
		!strings.ContainsAny(text[1:len(text)-1], `'"\`):
		return text[1 : len(text)-1]
	}
	return ""
}
