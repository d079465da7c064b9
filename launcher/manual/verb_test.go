package manual

import (
	"slices"
	"strings"
	"testing"

	"github.com/urfave/cli/v2"
)

func verbApp() *cli.App {
	json := func() cli.Flag { return &cli.BoolFlag{Name: "json"} }
	return &cli.App{Name: "gpurun", Commands: []*cli.Command{
		{Name: "run", SkipFlagParsing: true},
		{Name: "logs", Flags: []cli.Flag{json(), &cli.BoolFlag{Name: "follow", Aliases: []string{"f"}}, &cli.IntFlag{Name: "rank"}}},
		{Name: "help", SkipFlagParsing: true},
		{Name: "version", Flags: []cli.Flag{json()}},
	}}
}

// A verb's flags may be anywhere on its line; a line without a verb is a job's.
func TestArrange(t *testing.T) {
	for line, want := range map[string]string{
		"":                              "help",
		"logs r1 --rank 3 -f":           "logs --rank 3 -f r1",
		"logs --rank=3 r1":              "logs --rank=3 r1",
		"logs -f -- --rank":             "logs -f -- --rank",
		"--json logs r1":                "logs --json r1",
		"logs r1 --help":                "help logs r1 --help",
		"train.py --json logs":          "run train.py --json logs",
		"--nproc-per-node 2 t.py":       "run --nproc-per-node 2 t.py",
		"--version":                     "version",
		"--quiet train.toml":            "run --quiet train.toml",
		"run train.py --rank 3 -f logs": "run train.py --rank 3 -f logs",
	} {
		got := Arrange(verbApp(), append([]string{"gpurun"}, strings.Fields(line)...))
		if !slices.Equal(got[1:], strings.Fields(want)) {
			t.Errorf("%q becomes %q, want %q", line, got[1:], want)
		}
	}
}

// Only gpurun's own --json asks for JSON.
func TestAsksJSON(t *testing.T) {
	for line, want := range map[string]bool{
		"logs r1 --json": true, "--json logs": true, "logs -- --json": false, "--json train.py": true, "train.py --json": false, "version": false,
	} {
		if got := AsksJSON(verbApp(), append([]string{"gpurun"}, strings.Fields(line)...)); got != want {
			t.Errorf("%q: %v", line, got)
		}
	}
}
