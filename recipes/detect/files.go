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
	hydra := slices.IndexFunc(j.Command.Code, func(file format.CodeFile) bool { return file.Hydra != nil })
	for i, word := range argv {
		key, _, cut := strings.Cut(strings.TrimLeft(word, "+~"), "=")
		if i > 0 && cut && !strings.HasPrefix(key, "-") && key != "" {
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
	return all
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
	values map[string]any // by the path of the key
	names  []string       // the paths, in order
}

// word returns the value of an option of the command, or of a word group=option.
func (j Job) word(names ...string) (value string) {
	for i, w := range j.Command.Argv {
		option, after, cut := strings.Cut(w, "=")
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

// composed are the candidates among the keys of Hydra's configuration: of its own file, and of those that its list of
// defaults names.
func (j Job) composed(h format.HydraMain) (all []candidate) {
	if j.Read == nil {
		return nil
	}
	c := composition{Job: j, values: map[string]any{}}
	c.folder = cmp.Or(j.word("--config-path", "-cp", "--config-dir", "-cd"), path.Join(j.Folder, cmp.Or(h.Folder, ".")))
	root := c.look(cmp.Or(j.word("--config-name", "-cn"), h.Name), "")
	entries, _ := root["defaults"].([]any)
	for _, entry := range entries {
		if name, is := entry.(string); is && name != "_self_" {
			c.look(name, "")
		}
		groups, _ := entry.(map[string]any)
		for group, option := range groups {
			group = strings.TrimPrefix(strings.TrimPrefix(group, "optional "), "/")
			c.look(path.Join(group, cmp.Or(j.word(group), fmt.Sprint(option))), strings.ReplaceAll(group, "/", "."))
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

// look reads a file of the configuration, whose keys are below prefix unless the file moves them.
func (c *composition) look(name, prefix string) (root map[string]any) {
	for _, ending := range []string{"", ".yaml", ".yml"} {
		text := c.Read(path.Join(c.folder, name) + ending)
		if text == nil {
			continue
		}
		decoded, err := edit.Decode(edit.YAML, text)
		if root, _ = decoded.(map[string]any); err != nil || root == nil {
			return nil
		}
		if m := packaged().FindSubmatch(text); m != nil && string(m[1]) != "_group_" {
			prefix = strings.TrimPrefix(string(m[1]), "_global_")
		}
		for _, keys := range numbered(root, nil) {
			name := strings.Trim(prefix+"."+strings.Join(keys, "."), ".")
			if value, _, _ := edit.Get(edit.YAML, text, edit.Join(keys)); c.values[name] == nil {
				c.values[name] = value
				c.names = append(c.names, name)
			}
		}
		return root
	}
	return nil
}
