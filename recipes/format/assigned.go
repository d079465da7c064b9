package format

import (
	"fmt"
	"github.com/gpurun/gpurun/launcher/lazy"
	"slices"
	"strconv"
	"strings"
)

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
	case len(text) >= 2 && strings.ContainsAny(text[:1], `'"`) && text[len(text)-1] == text[0] && !strings.ContainsAny(text[1:len(text)-1], `'"\`):
		return text[1 : len(text)-1]
	}
	return ""
}
