package main

import (
	"maps"

	"github.com/gpurun/gpurun/recipes"
	"github.com/gpurun/gpurun/strategy"
)

// settings knows by a recipe where a framework writes which settings it uses.
type settings struct {
	recipe  recipes.Recipe
	command recipes.Command // as the user wrote it
	at      recipes.Topology
}

// Files are globs of the files in which the framework writes them.
func (s settings) Files() []string { return s.recipe.ProofFiles(s.command) }

// InFile gives the settings that such a file shows.
func (s settings) InFile(glob string, text []byte) []strategy.Proof {
	return s.recipe.ProofFile(s.command, glob, text)
}

// InVariable gives the knobs that a variable sets otherwise than gpurun did.
func (s settings) InVariable(name, asked, used string) strategy.Plan {
	before, _, err := s.recipe.Read(s.withVariable(name, asked), s.at)
	if err != nil {
		return nil
	}
	after, _, err := s.recipe.Read(s.withVariable(name, used), s.at)
	if err != nil {
		return nil
	}
	other := strategy.Plan{}
	for k, pair := range before.Changed(after) {
		other[k] = pair[1]
	}
	return other
}

func (s settings) withVariable(name, value string) recipes.Command {
	command := s.command
	command.Env = map[string]string{}
	maps.Copy(command.Env, s.command.Env)
	command.Env[name] = value
	return command
}
