package main

import (
	"encoding/json"
	"fmt"

	"github.com/urfave/cli/v2"

	"github.com/gpurun/gpurun/launcher/gang/session"
	"github.com/gpurun/gpurun/launcher/verb"
)

func secretCommand(s streams) *cli.Command {
	return &cli.Command{
		Name: "secret", Usage: "print a new secret, by which the nodes of a launch know each other", UsageText: "gpurun secret [--json]", Flags: []cli.Flag{jsonFlag()},
		Action: func(c *cli.Context) error {
			err := verb.AtMost(c, 0)
			switch {
			case err != nil:
			case c.Bool("json"):
				err = json.NewEncoder(s.out).Encode(map[string]string{"secret": session.NewSecret()})
			default:
				_, err = fmt.Fprintln(s.out, session.NewSecret())
			}
			return err
		},
	}
}
