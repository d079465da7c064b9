package recipes

import (
	"slices"

	"go.yaml.in/yaml/v3"
)

// A yamlPair is a key of a YAML table, with what its value stands for.
type yamlPair struct {
	key   string
	value *yaml.Node
}

// pairsOf are the pairs of a table in their order, aliases resolved and merged
// tables ("<<") taken in behind it, where they have keys that it lacks.
func pairsOf(table *yaml.Node) []yamlPair {
	var pairs []yamlPair
	var merged []*yaml.Node
	for i := 0; i+1 < len(table.Content); i += 2 {
		key, value := table.Content[i], meant(table.Content[i+1])
		switch {
		case key.Tag != "!!merge":
			pairs = append(pairs, yamlPair{key.Value, value})
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
		for _, pair := range pairsOf(m) {
			if !slices.ContainsFunc(pairs, func(p yamlPair) bool { return p.key == pair.key }) {
				pairs = append(pairs, pair)
			}
		}
	}
	return pairs
}

// meant is what an alias stands for, else the node itself.
func meant(node *yaml.Node) *yaml.Node {
	if node.Kind == yaml.AliasNode {
		return node.Alias
	}
	return node
}
