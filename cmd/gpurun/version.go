package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"runtime"

	"github.com/urfave/cli/v2"

	"github.com/gpurun/gpurun/launcher/manual"
	"github.com/gpurun/gpurun/launcher/ranks"
)

// versionDocument is what gpurun version prints with --json.
type versionDocument struct {
	Version string `json:"version"`
	Commit  string `json:"commit,omitempty"`
	Go      string `json:"go"`
	NVML    bool   `json:"nvml"`
}

func versionCommand(s stdio) *cli.Command {
	return &cli.Command{
		Name:      "version",
		Usage:     "print gpurun's version, and whether NVML is built in",
		UsageText: "gpurun version [--json]",
		Flags:     []cli.Flag{jsonFlag()},
		Action: func(c *cli.Context) error {
			if err := manual.AtMost(c, 0); err != nil {
				return err
			}
			v := versionDocument{manual.Version(), manual.Commit(), runtime.Version(), ranks.HasNVML()}
			if c.Bool("json") {
				return json.NewEncoder(s.out).Encode(v)
			}
			nvml := "NVML built in"
			if !v.NVML {
				nvml = "built without NVML (cgo was off): GPUs are counted, their memory is not watched"
			}
			_, err := fmt.Fprintf(s.out, "gpurun %s, commit %s, %s, %s\n", v.Version, cmp.Or(v.Commit, "unknown"), v.Go, nvml)
			return err
		},
	}
}

func jsonFlag() cli.Flag {
	return &cli.BoolFlag{Name: "json", Usage: "print one JSON document on stdout", DisableDefaultText: true}
}
