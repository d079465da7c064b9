package job

import (
	"slices"
	"strconv"
	"strings"

	"github.com/gpurun/gpurun/launcher/cluster"
	"github.com/gpurun/gpurun/launcher/commandline"
	"github.com/gpurun/gpurun/launcher/environ"
)

// place says which node of which launch this is. It refuses what cannot work.
func (j *Job) place(environ []string) (cluster.Placement, error) {
	place, err := j.where(environ)
	if err != nil {
		return cluster.Placement{}, err
	}
	return place, place.Refuse()
}

// Follows reports whether gpurun on another node decides for this job, and tells of it. Of
// variables that contradict each other Prepare tells.
func (j *Job) Follows(environ []string) bool {
	place, err := j.where(environ)
	return err == nil && place.NodeRank > 0
}

// where says which node this is by the job's command and by an environment.
func (j *Job) where(environ []string) (cluster.Placement, error) {
	asked, variables := asked(j.nodes)
	return asked.Detect(append(slices.Clone(environ), variables...))
}

// asked parts what a command line says of nodes into flags, and torchrun's variables that
// stand in it, which are as strong as such variables are.
func asked(n commandline.Nodes) (a cluster.Asked, variables []string) {
	flag := func(s commandline.Said) cluster.GivenValue {
		if strings.HasPrefix(s.By, "PET_") {
			variables = append(variables, s.By+"="+s.Value)
			return cluster.GivenValue{}
		}
		return cluster.GivenValue(s)
	}
	a = cluster.Asked{Nodes: flag(n.Count), Rank: flag(n.Rank), Default: flag(n.Default), Head: flag(n.Head), ID: flag(n.ID), How: n.How}
	return a, variables
}

// nodeVars are the variables by which the launcher that was typed tells a rank of its
// node. torchrun's own, GROUP_RANK and GROUP_WORLD_SIZE, are set with the ranks' numbers.
func (s Inspected) nodeVars(local int) environ.Vars {
	vars, names := environ.Vars{}, s.job.Launch.Launcher.Vars
	for name, value := range map[string]int{names.Rank: s.place.NodeRank, names.Count: s.place.Nodes, names.Local: local} {
		if name != "" {
			vars[name] = strconv.Itoa(value)
		}
	}
	return vars
}

// WithoutNumber are words that were typed, without this node's number where a step of Slurm
// numbers the nodes: a line that starts all of them has none.
func (p *Prepared) WithoutNumber(typed []string) []string {
	if place := p.resolved.place; place.Kind != cluster.SlurmStep || place.Nodes == 1 {
		return typed
	}
	return unnumbered(typed, len(p.resolved.job.Argv))
}

// unnumbered are the words of a command without those that differ from node to node, so
// that all nodes have one job. rest is how many words of the script's stand at their end.
func unnumbered(words []string, rest int) []string {
	var left []string
	for i := 0; i < len(words); i++ {
		name, _, attached := strings.Cut(strings.ReplaceAll(words[i], "_", "-"), "=")
		if i >= len(words)-rest || name != "--node-rank" && name != "--machine-rank" {
			left = append(left, words[i])
		} else if !attached {
			i++
		}
	}
	return left
}
