package main

import (
	"encoding/json"
	"fmt"
	"runtime"

	"github.com/urfave/cli/v2"

	"github.com/gpurun/gpurun/launcher/gpu"
	"github.com/gpurun/gpurun/launcher/verb"
)

func versionCommand(s streams) *cli.Command {
	return &cli.Command{
		Name:      "version",
		Usage:     "print gpurun's version, and whether NVML is built in",
		UsageText: "gpurun version [--json]",
		Flags:     []cli.Flag{jsonFlag()},
		Action: func(c *cli.Context) error {
			if err := verb.AtMost(c, 0); err != nil {
				return err
			}
			v := struct {
				Version string `json:"version"`
				Go      string `json:"go"`
				NVML    bool   `json:"nvml"`
			}{verb.Version(), runtime.Version(), gpu.BuiltIn()}
			if c.Bool("json") {
				return json.NewEncoder(s.out).Encode(v)
			}
			nvml := "NVML built in"
			if !v.NVML {
				nvml = "built without NVML (cgo was off): GPUs are counted, their memory is not watched"
			}
			_, err := fmt.Fprintf(s.out, "gpurun %s, %s, %s\n", v.Version, v.Go, nvml)
			return err
		},
	}
}

func jsonFlag() cli.Flag {
	return &cli.BoolFlag{Name: "json", Usage: "print one JSON document on stdout", DisableDefaultText: true}
}
