package recipes

import (
	"errors"
	"fmt"
	"slices"

	"go.yaml.in/yaml/v3"

	"github.com/gpurun/gpurun/launcher/commandline"
)

// ForRank returns the command of one rank of a node: an argument that differs from rank to rank
// is filled in.
func ForRank(argv []string, local int) []string {
	own := slices.Clone(argv)
	for i, word := range own {
		if word == commandline.LocalRank {
			own[i] = fmt.Sprintf("--local_rank=%d", local)
		}
	}
	return own
}

// A ReadFile reads a file as the job would find it.
type ReadFile func(path string) ([]byte, error)

// Unwrap removes a framework's launcher from a command. It is false if the command starts with no
// launcher that gpurun can replace; the error names the option that it cannot handle.
func Unwrap(words []string, env map[string]string, read ReadFile) (inner commandline.Inner, known bool, err error) {
	return commandline.Known.UnwrapLauncher(words, commandline.Environ(env), commandline.Files{
		Exists: func(name string) bool {
			_, err := read(name)
			return err == nil
		},
		Text: func(name string) (string, error) {
			text, err := read(name)
			if err != nil {
				return "", fmt.Errorf("read %s: %w", name, err)
			}
			return string(text), nil
		},
		Table: func(name string) ([]commandline.Pair, error) {
			table, err := launcherTable(name, read)
			if err != nil {
				return nil, fmt.Errorf("read %s: %w", name, err)
			}
			return table, nil
		},
	})
}

// launcherTable reads a launcher's configuration file.
func launcherTable(name string, read ReadFile) ([]commandline.Pair, error) {
	text, err := read(name)
	if err != nil {
		return nil, err
	}
	var doc yaml.Node
	if err := yaml.Unmarshal(text, &doc); err != nil {
		return nil, err
	}
	if len(doc.Content) != 1 || doc.Content[0].Kind != yaml.MappingNode {
		return nil, errors.New("it holds no table")
	}
	return launcherPairs(doc.Content[0]), nil
}

// launcherPairs returns the pairs of a YAML table in their order, followed by those of merged
// tables ("<<") whose keys it lacks.
func launcherPairs(table *yaml.Node) []commandline.Pair {
	var pairs []commandline.Pair
	var merged []*yaml.Node
	for i := 0; i+1 < len(table.Content); i += 2 {
		key, value := table.Content[i], meant(table.Content[i+1])
		switch {
		case key.Tag != "!!merge":
			pairs = append(pairs, launcherPair(key.Value, value))
		case value.Kind == yaml.SequenceNode:
			merged = append(merged, value.Content...)
		default:
			merged = append(merged, value)
		}
	}
	for _, m := range merged {
		if m = meant(m); m.Kind != yaml.MappingNode {
			continue
		}
		for _, pair := range launcherPairs(m) {
			if !slices.ContainsFunc(pairs, func(p commandline.Pair) bool { return p.Key == pair.Key }) {
				pairs = append(pairs, pair)
			}
		}
	}
	return pairs
}

func launcherPair(key string, value *yaml.Node) commandline.Pair {
	pair := commandline.Pair{Key: key}
	switch {
	case value.Kind == yaml.MappingNode:
		pair.Kind, pair.Table = commandline.Nested, launcherPairs(value)
	case value.Kind == yaml.SequenceNode:
		pair.Kind = commandline.List
		for _, item := range value.Content {
			pair.List = append(pair.List, meant(item).Value)
		}
	case value.Tag == "!!null":
		pair.Kind = commandline.Null
	default:
		pair.Text = value.Value
	}
	return pair
}

// meant returns the node that an alias refers to, or else the node itself.
func meant(node *yaml.Node) *yaml.Node {
	if node.Kind == yaml.AliasNode {
		return node.Alias
	}
	return node
}
