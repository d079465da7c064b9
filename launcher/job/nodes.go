package job

import (
	"slices"
	"strings"

	"github.com/gpurun/gpurun/launcher/cluster"
	"github.com/gpurun/gpurun/launcher/commandline"
	"github.com/gpurun/gpurun/launcher/errext"
)

// place says which node of which launch this is, by the job's command and by an
// environment. It refuses what cannot work.
func (j *Job) place(environ []string) (cluster.Place, error) {
	asked, variables := asked(j.nodes)
	place, err := asked.Detect(append(slices.Clone(environ), variables...))
	if err != nil {
		return cluster.Place{}, err
	}
	return place, place.Refuse()
}

// At is which node of which launch this is.
func (p *Prepared) At() cluster.Place { return p.resolved.place }

// refusePlain refuses a job of several nodes that gpurun would start as one process on each,
// which is given no rank: every node would train the whole job by itself.
func (s Inspected) refusePlain(p processes) error {
	if s.place.Nodes <= 1 || !p.plain {
		return nil
	}
	return errext.Errorf("put torchrun before the script, or write it into train.toml: then gpurun gives each process its rank",
		"the job is one process that is given no rank (%s), and on %d nodes each would train all of it", p.why, s.place.Nodes)
}

// asked parts what a command line says of nodes into flags, and torchrun's variables that
// stand in it, which are as strong as such variables are.
func asked(n commandline.Nodes) (a cluster.Asked, variables []string) {
	flag := func(s commandline.Said) cluster.Said {
		if strings.HasPrefix(s.By, "PET_") {
			variables = append(variables, s.By+"="+s.Value)
			return cluster.Said{}
		}
		return cluster.Said(s)
	}
	a = cluster.Asked{Nodes: flag(n.Count), Rank: flag(n.Rank), Default: flag(n.Default), Head: flag(n.Head), ID: flag(n.ID), How: n.How}
	return a, variables
}
