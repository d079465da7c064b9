package recipes

import (
	"errors"
	"fmt"
	"slices"

	"go.yaml.in/yaml/v3"

	"github.com/gpurun/gpurun/launcher/commandline"
	"github.com/gpurun/gpurun/launcher/environ"
)

// An Inner is what a launcher starts on each rank.
type Inner = commandline.Inner

// An InnerKind is how the inner command is started.
type InnerKind = commandline.Kind

// The kinds of inner command.
const (
	InnerScript  = commandline.Script
	InnerModule  = commandline.Module
	InnerProgram = commandline.Program
)

// Site is the beginning of words of Inner.Argv that name a file which the
// framework brings with it: the rest is its path in the interpreter's packages.
const Site = commandline.Site

// LocalRank stands in Inner.Argv for an argument that differs from rank to rank:
// {local_rank} is the rank's number on its node. Commands of all ranks have it;
// ForRank fills it in.
const LocalRank = commandline.LocalRank

// ForRank is the command of one rank of a node.
func ForRank(argv []string, local int) []string {
	own := slices.Clone(argv)
	for i, word := range own {
		if word == LocalRank {
			own[i] = fmt.Sprintf("--local_rank=%d", local)
		}
	}
	return own
}

// A ReadFile reads a file as the job would find it.
type ReadFile func(path string) ([]byte, error)

// Unwrap takes a framework's launcher off a command. It is false where the
// command starts with none that gpurun can take over; the error says what gpurun
// cannot take over from it.
func Unwrap(words []string, env map[string]string, read ReadFile) (inner Inner, known bool, err error) {
	return commandline.Known.UnwrapLauncher(words, environ.Vars(env), commandline.Files{
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

// launcherPairs are the pairs of a YAML table, with those of the tables inside it.
func launcherPairs(table *yaml.Node) []commandline.Pair {
	var pairs []commandline.Pair
	for _, p := range pairsOf(table) {
		pair := commandline.Pair{Key: p.key}
		switch {
		case p.value.Kind == yaml.MappingNode:
			pair.Kind, pair.Table = commandline.Nested, launcherPairs(p.value)
		case p.value.Kind == yaml.SequenceNode:
			pair.Kind = commandline.List
			for _, item := range p.value.Content {
				pair.List = append(pair.List, meant(item).Value)
			}
		case p.value.Tag == "!!null":
			pair.Kind = commandline.Null
		default:
			pair.Text = p.value.Value
		}
		pairs = append(pairs, pair)
	}
	return pairs
}
