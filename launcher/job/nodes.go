package job

import (
	"slices"
	"strings"

	"github.com/gpurun/gpurun/launcher/cluster"
	"github.com/gpurun/gpurun/launcher/commandline"
)

// place says which node of which launch this is, by the job's command and by an
// environment. It refuses more than one node.
func (j *Job) place(environ []string) (cluster.Place, error) {
	asked, variables := asked(j.nodes)
	place, err := asked.Detect(append(slices.Clone(environ), variables...))
	if err != nil {
		return cluster.Place{}, err
	}
	if err := place.OneNodeOnly(); err != nil {
		return cluster.Place{}, err
	}
	return place, place.Refuse()
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
