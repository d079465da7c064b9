package script

import (
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/gpurun/gpurun/launcher/lazy"
	"github.com/gpurun/gpurun/recipes/format"
	"github.com/gpurun/gpurun/recipes/patch"
)

// A configuration is a file with settings that the job reads.
type configuration struct {
	name string // as the command or the code names it
	text []byte
	kind patch.Format
	root any
	// via is the argument that names it; nil: code does, or a word of the command, counted from 1.
	via *Argument
	nth int
}

// largestTree bounds the number of values of a file that are searched for one.
const largestTree = 20000

// configurations are the files that the code reads and that exist, as far as the command names
// them, or code has their names.
func (s *Analysis) configurations() []configuration {
	if s.files != nil || s.read == nil {
		return s.files
	}
	s.files = []configuration{}
	for _, u := range s.facts.Files {
		for _, v := range u.Value.alternatives() {
			name, via := s.pathOf(v)
			s.add(name, via)
		}
	}
	for i, word := range s.argv {
		if len(s.facts.Files) > 0 && i > 0 {
			head, tail, cut := strings.Cut(word, "=")
			if !cut {
				head, tail = s.argv[i-1], word
			}
			s.add(tail, s.option(head))
		}
	}
	return s.files
}

// option is the argument of the script with a name that takes a value; nil if there is none.
func (s *Analysis) option(name string) *Argument {
	i := slices.IndexFunc(s.facts.Settings, func(one Argument) bool {
		return slices.Contains(one.Options, name) && (one.Action == "" || one.Action == "store") && one.Nargs == ""
	})
	if i < 0 {
		return nil
	}
	return &s.facts.Settings[i]
}

// add reads a configuration; a file that does not exist, or has another format, is none.
func (s *Analysis) add(name string, via *Argument) {
	if name == "" || slices.ContainsFunc(s.files, func(c configuration) bool { return path.Clean(c.name) == path.Clean(name) }) {
		return
	}
	kind, known := patch.FormatOf(name, nil)
	if !known {
		return
	}
	text := s.read(name)
	root, err := patch.Decode(kind, text)
	if text == nil || err != nil {
		return
	}
	c := configuration{name: name, text: text, kind: kind, root: root, via: via}
	if via == nil {
		c.nth = 1 + slices.Index(format.PlainWords(s.argv), name)
	}
	s.files = append(s.files, c)
}

// pathOf is the path that a value has with this command; empty if it is not known.
func (s *Analysis) pathOf(v value) (name string, via *Argument) {
	text, _ := v.Const.value.(string)
	switch {
	case text != "":
		return text, nil
	case v.Set != nil && *v.Set >= 0 && *v.Set < len(s.facts.Settings):
		one := s.facts.Settings[*v.Set]
		return s.textOf(&one), &one
	case v.Op == "join":
		for _, part := range v.Of {
			of, _ := s.pathOf(part)
			if of == "" {
				return "", nil
			}
			name = path.Join(name, of)
		}
		return name, nil
	}
	return "", nil
}

// textOf is the value of an argument as text: of the command line, else its default; empty if that is no text.
func (s *Analysis) textOf(one *Argument) string {
	if word, given := s.word(one.Options); given {
		return word
	}
	text, _ := one.Default.(string)
	return text
}

// word is the value of an option on the command line.
func (s *Analysis) word(options []string) (value string, given bool) {
	for i, word := range s.argv {
		head, tail, equals := strings.Cut(word, "=")
		switch {
		case i == 0 || !slices.Contains(options, head):
		case equals:
			return tail, true
		case i+1 < len(s.argv):
			return s.argv[i+1], true
		}
	}
	return "", false
}

// names of the keys in a["b"].c.
var (
	keysOf   = lazy.Regexp(`^[A-Za-z_]\w*(?:\.[A-Za-z_]\w*|\[['"][\w.-]+['"]\])+$`)
	oneKey   = lazy.Regexp(`[A-Za-z_][\w-]*`)
	holdsAll = lazy.Regexp(`(?i)(^|_)(args?|opts?|options?|cfg|conf|configs?|configuration|hparams?|hps?|h|c|params?|flags|settings?|hypes|namespace)$`)
)

// known replaces the names in a value by the settings that they are: words of the command, and
// keys of its configuration files.
func (s *Analysis) known(v value) value {
	if v.Name != "" && keysOf().MatchString(v.Name) {
		if t, found := s.lookUp(oneKey().FindAllString(v.Name, -1)); found {
			return value{found: &t}
		}
	}
	if v.File != nil && v.File.Name != "" {
		if t, found := s.positional(v.Path); found {
			return value{found: &t}
		}
	}
	if v.File != nil && s.read != nil && !v.Pairs {
		if name, isText := v.File.Const.value.(string); isText {
			if c := s.configuration(name, nil); c != nil && len(v.Path) > 0 {
				if n, there := number(c.root, v.Path); there {
					t := s.inFile(*c, v.Path, n)
					return value{found: &t}
				}
			}
		}
	}
	of := func(parts []value) []value {
		if parts == nil {
			return nil
		}
		next := make([]value, len(parts))
		for i, part := range parts {
			next[i] = s.known(part)
		}
		return next
	}
	v.Of, v.Any = of(v.Of), of(v.Any)
	return v
}

// positional is a key of the only file that a word of the command names without an option.
func (s *Analysis) positional(key []string) (t target, found bool) {
	named := slices.DeleteFunc(slices.Clone(s.configurations()), func(c configuration) bool { return c.nth == 0 })
	if len(named) != 1 || len(key) == 0 {
		return target{}, false
	}
	n, there := number(named[0].root, key)
	return s.inFile(named[0], key, n), there
}

// lookUp finds the setting that an attribute of a configuration object is.
func (s *Analysis) lookUp(keys []string) (t target, found bool) {
	if len(keys) < 2 {
		return target{}, false
	}
	last, owner := keys[len(keys)-1], keys[len(keys)-2]
	if holdsAll().MatchString(owner) {
		if t, given := s.typed(last); given {
			return t, true
		}
	}
	for _, c := range s.configurations() {
		for from := 1; from < len(keys); from++ {
			if n, there := number(c.root, keys[from:]); there {
				return s.inFile(c, keys[from:], n), true
			}
		}
	}
	var ends []target
	for _, c := range s.configurations() {
		for _, at := range leaves(c.root, nil, last) {
			if n, there := number(c.root, at); there && !slices.ContainsFunc(at, evalWord().MatchString) {
				ends = append(ends, s.inFile(c, at, n))
			}
		}
	}
	if len(ends) != 1 {
		return target{}, false
	}
	return ends[0], true
}

// typed is the option of the command line with the name of a key.
func (s *Analysis) typed(key string) (target, bool) {
	for i, word := range s.argv {
		head, _, _ := strings.Cut(word, "=")
		name := strings.ReplaceAll(strings.TrimLeft(head, "-"), "-", "_")
		if i == 0 || !strings.HasPrefix(head, "--") || name != key {
			continue
		}
		text, _ := s.word([]string{head})
		if _, err := strconv.Atoi(text); err == nil {
			return target{key: head, settings: []Argument{{Kind: "argparse", Options: []string{head}, Dest: key, Type: "int"}}}, true
		}
	}
	return target{}, false
}

// inFile is a key of a file, which words of the command may override.
func (s *Analysis) inFile(c configuration, at []string, n int64) target {
	t := c.target(at, n)
	if t.dotted = s.facts.Dotted; t.dotted && t.via == nil {
		t.fallback = float64(n)
	}
	return t
}

// number is the whole number at a path of a decoded file.
func number(root any, at []string) (int64, bool) {
	for _, key := range at {
		inner, ok := root.(map[string]any)
		if !ok {
			return 0, false
		}
		root = inner[key]
	}
	return whole(root)
}

// whole is a decoded value as a whole number.
func whole(v any) (int64, bool) {
	switch n := v.(type) {
	case int:
		return int64(n), true
	case int64:
		return n, true
	case float64:
		return int64(n), n == float64(int64(n))
	}
	return 0, false
}

// leaves lists the paths of the values at a key, at any depth.
func leaves(root any, at []string, key string) [][]string {
	var all [][]string
	inner, _ := root.(map[string]any)
	if len(at) > 12 || len(inner) > largestTree {
		return nil
	}
	for name, value := range inner {
		here := append(slices.Clone(at), name)
		if name == key {
			all = append(all, here)
			continue
		}
		all = append(all, leaves(value, here, key)...)
	}
	return all
}

// target is a key of the file.
func (c configuration) target(at []string, n int64) target {
	t := target{key: "file " + c.name + " " + strings.Join(at, "."), path: at, via: c.via, nth: c.nth, fixed: n, place: c.place(at)}
	if c.via != nil {
		t.key = "file " + strings.Join(c.via.Options, " ") + " " + strings.Join(at, ".")
	}
	return t
}

// place is the file of a key, and its line if it is known.
func (c configuration) place(at []string) string {
	if line := patch.Line(c.kind, c.text, at); line > 0 {
		return fmt.Sprintf("%s:%d", c.name, line)
	}
	return c.name
}

// bases are the keys with the files that a configuration extends.
var bases = []string{"_BASE_", "_base_", "BASE"}

// extends reports whether other files have keys of the configuration.
func (c configuration) extends() bool {
	root, _ := c.root.(map[string]any)
	return slices.ContainsFunc(append(bases, "__include__", "defaults", "includes"), func(key string) bool { return root[key] != nil })
}

// base is the value of a key in the files that a configuration extends, as those of yacs, Detectron2
// and MMEngine do.
func (s *Analysis) base(c configuration, at []string, depth int) (n int64, found bool) {
	if n, found = number(c.root, at); found || depth > 5 {
		return n, found
	}
	root, _ := c.root.(map[string]any)
	for _, key := range bases {
		names, isList := root[key].([]any)
		if one, isText := root[key].(string); isText {
			names, isList = []any{one}, true
		}
		for _, name := range names {
			text, isText := name.(string)
			if !isList || !isText || text == "" {
				continue
			}
			file := path.Join(path.Dir(c.name), text)
			content := s.read(file)
			if inner, err := patch.Decode(c.kind, content); err == nil && content != nil {
				if n, found = s.base(configuration{name: file, text: content, kind: c.kind, root: inner}, at, depth+1); found {
					return n, true
				}
			}
		}
	}
	return 0, false
}

// inherited is the value of a key that its own file does not have: that of a file which it extends.
func (s *Analysis) inherited(t target) (any, bool) {
	for _, c := range s.configurations() {
		if c.via != nil && t.via != nil && slices.Equal(c.via.Options, t.via.Options) {
			if n, found := s.base(c, t.path, 0); found {
				return float64(n), true
			}
		}
	}
	return nil, false
}

// reported reports whether the job makes batches whose size its sources do not show.
func (s *Analysis) reported(unknown string) bool {
	batch := func(word string) bool { return strings.Contains(strings.ToLower(word), "batch") }
	switch {
	case strings.Contains(unknown, constantText):
		return false
	case unknown != "", len(s.facts.Files) > 0, s.facts.Hydra != nil, slices.ContainsFunc(s.argv[min(1, len(s.argv)):], batch):
		return true
	}
	return slices.ContainsFunc(s.facts.Settings, func(one Argument) bool { return batch(one.Dest) })
}
