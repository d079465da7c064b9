package detect

import (
	"cmp"
	"fmt"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/gpurun/gpurun/launcher/lazy"
	"github.com/gpurun/gpurun/recipes/edit"
	"github.com/gpurun/gpurun/recipes/format"
)

// files are the candidates among the keys of configuration files that the command names, of Hydra's, and among the
// words a.b=c of the command.
func (j Job) files() (all []candidate) {
	argv := j.Command.Argv
	overridden := map[string]bool{}
	hydra := slices.IndexFunc(j.Command.Code, func(file format.CodeFile) bool { return file.Hydra != nil })
	for i, word := range argv {
		key, _, cut := strings.Cut(strings.TrimLeft(word, "+~"), "=")
		if i > 0 && cut && !strings.HasPrefix(key, "-") && key != "" {
			overridden[key] = true
			all = append(all, ofKey(strings.Split(key, "."), map[string]any{"override": key, "given": true}, key)...)
		}
	}
	if hydra >= 0 {
		return append(all, j.composed(*j.Command.Code[hydra].Hydra)...)
	}
	plain := 0
	for i, word := range argv {
		if i == 0 {
			continue
		}
		option, value, cut := strings.Cut(word, "=")
		switch {
		case strings.HasPrefix(word, "-") && cut:
			all = append(all, j.inFile(value, map[string]any{"arg": option})...)
		case strings.HasPrefix(argv[i-1], "-") && !strings.Contains(argv[i-1], "=") && !strings.HasPrefix(word, "-"):
			all = append(all, j.inFile(word, map[string]any{"arg": argv[i-1]})...)
			plain++ // the option may be a flag
		case !strings.HasPrefix(word, "-"):
			plain++
			all = append(all, j.inFile(word, map[string]any{"word": int64(plain)})...)
		}
	}
	for _, a := range declared(j.Command.Code) {
		if !slices.ContainsFunc(argv, func(word string) bool {
			option, _, _ := strings.Cut(word, "=")
			return slices.Contains(a.Names, option)
		}) {
			all = append(all, j.inFile(a.Default.Text, map[string]any{"arg": dashed(a.Names)[0]})...)
		}
	}
	return slices.DeleteFunc(all, func(c candidate) bool { return c.Name != c.Key && overridden[c.Key] })
}

// inFile are the candidates among the keys of a configuration file that the command names.
func (j Job) inFile(name string, via map[string]any) (all []candidate) {
	kind, known := edit.FormatOf(name, nil)
	if !known || j.Read == nil {
		return nil
	}
	text := j.Read(name)
	if text == nil {
		return nil
	}
	root, err := edit.Decode(kind, text)
	if err != nil {
		return nil
	}
	for _, keys := range numbered(root, nil) {
		entry := map[string]any{"path": edit.Join(keys), "via": []any{via}}
		if via["arg"] != nil {
			entry["file"] = name
		}
		all = append(all, ofKey(keys, entry, strings.Join(keys, ".")+" of "+name)...)
	}
	return all
}

// ofKey is the candidate of a key; none if its name suggests no knob.
func ofKey(keys []string, entry map[string]any, name string) []candidate {
	k, rank, ok := named(keys)
	c := candidate{knob: k, rank: rank, LikelyPlace: format.LikelyPlace{Name: name, Key: strings.Join(keys, ".")}}
	if ok && !k.Whole() {
		entry = nil
	}
	if !ok || !c.complete(entry) {
		return nil
	}
	return []candidate{c}
}

// mostKeys bounds the depth of a configuration.
const mostKeys = 6

// numbered lists the paths of the values in a configuration that are no lists or tables, in order.
func numbered(root any, at []string) (all [][]string) {
	table, is := root.(map[string]any)
	if !is || len(at) >= mostKeys {
		return nil
	}
	for _, key := range slices.Sorted(maps.Keys(table)) {
		keys := append(slices.Clone(at), key)
		switch table[key].(type) {
		case map[string]any:
			all = append(all, numbered(table[key], keys)...)
		case []any, nil:
		default:
			all = append(all, keys)
		}
	}
	return all
}

// packaged matches the line by which a file of Hydra moves its keys.
var packaged = lazy.Regexp(`(?m)^#[ \t]*@package[ \t]+(\S+)`)

// A composition is Hydra's configuration while its files are read.
type composition struct {
	Job
	folder string
	chosen map[string]string // by group: the option of an entry "override group"
	values map[string]any    // by the path of the key
	names  []string          // the paths, in order
	files  int
}

// word returns the value of an option of the command, or of a word group=option.
func (j Job) word(names ...string) (value string) {
	for i, w := range j.Command.Argv {
		option, after, cut := strings.Cut(strings.TrimLeft(w, "+"), "=")
		switch {
		case !slices.Contains(names, option):
		case cut:
			value = after
		case i+1 < len(j.Command.Argv):
			value = j.Command.Argv[i+1]
		}
	}
	return value
}

// composed are the candidates among the keys of Hydra's configuration: of its own file, and of those that lists of
// defaults and words +group=option name.
func (j Job) composed(h format.HydraMain) (all []candidate) {
	if j.Read == nil {
		return nil
	}
	c := composition{Job: j, chosen: map[string]string{}}
	c.folder = cmp.Or(j.word("--config-path", "-cp", "--config-dir", "-cd"), path.Join(j.Folder, cmp.Or(h.Folder, ".")))
	for range 2 { // the first time for the options that entries override
		c.values, c.names, c.files = map[string]any{}, nil, 0
		c.compose(cmp.Or(j.word("--config-name", "-cn"), h.Name), "", "")
		for _, w := range j.Command.Argv {
			if group, option, cut := strings.Cut(w, "="); cut && strings.HasPrefix(group, "+") {
				group = strings.TrimLeft(group, "+")
				c.compose(path.Join(group, option), group, strings.ReplaceAll(group, "/", "."))
			}
		}
	}
	for _, name := range c.names {
		entry := map[string]any{"override": name}
		if n, err := strconv.ParseInt(fmt.Sprint(c.values[name]), 10, 64); err == nil && n > 0 {
			entry["default"] = n
		} else {
			entry["given"] = true
		}
		all = append(all, ofKey(strings.Split(name, "."), entry, name)...)
	}
	return all
}

// mostComposed bounds how many files of a configuration are read.
const mostComposed = 200

// compose reads a file of a group in the configuration, and those of its list of defaults, of which later ones
// override. Its keys are below prefix unless the file moves them.
func (c *composition) compose(name, group, prefix string) {
	var text []byte
	for _, ending := range []string{"", ".yaml", ".yml"} {
		if text == nil {
			text = c.Read(path.Join(c.folder, name) + ending)
		}
	}
	decoded, err := edit.Decode(edit.YAML, text)
	root, _ := decoded.(map[string]any)
	if c.files++; text == nil || err != nil || root == nil || c.files > mostComposed {
		return
	}
	if m := packaged().FindSubmatch(text); m != nil && string(m[1]) != "_group_" {
		prefix = strings.TrimPrefix(string(m[1]), "_global_")
	}
	entries, _ := root["defaults"].([]any)
	if !slices.Contains(entries, any("_self_")) {
		entries = append(entries, "_self_")
	}
	for _, entry := range entries {
		if entry == "_self_" {
			c.keys(text, root, prefix)
		} else if name, is := entry.(string); is {
			c.compose(strings.TrimPrefix(path.Join("/", group, name), "/"), group, prefix)
		}
		groups, _ := entry.(map[string]any)
		for _, of := range slices.Sorted(maps.Keys(groups)) {
			c.entry(group, prefix, of, groups[of])
		}
	}
}

// entry reads an entry "group: option" of a list of defaults.
func (c *composition) entry(within, prefix, of string, option any) {
	of, overrides := strings.CutPrefix(of, "override ")
	of, at, moved := strings.Cut(strings.TrimPrefix(of, "optional "), "@")
	group := path.Join(within, of)
	if absolute, is := strings.CutPrefix(of, "/"); is {
		group, within, prefix = absolute, "", ""
	}
	choice, _ := option.(string)
	if overrides {
		c.chosen[group] = choice
		return
	}
	if choice = cmp.Or(c.word(group), c.chosen[group], choice); choice == "" || choice == "null" {
		return
	}
	below := strings.ReplaceAll(of, "/", ".")
	if strings.HasPrefix(of, "/") {
		below = strings.ReplaceAll(group, "/", ".")
	}
	if moved {
		below = strings.TrimPrefix(at, "_global_")
	}
	c.compose(path.Join(group, choice), group, strings.Trim(prefix+"."+below, "."))
}

// keys takes the values of a file.
func (c *composition) keys(text []byte, root map[string]any, prefix string) {
	for _, keys := range numbered(root, nil) {
		name := strings.Trim(prefix+"."+strings.Join(keys, "."), ".")
		if _, there := c.values[name]; !there {
			c.names = append(c.names, name)
		}
		c.values[name], _, _ = edit.Get(edit.YAML, text, edit.Join(keys))
	}
}
