package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/urfave/cli/v2"

	"github.com/gpurun/gpurun/strategy"
	"github.com/gpurun/gpurun/strategy/cause"
)

func diagnoseCommand(s streams) *cli.Command {
	return &cli.Command{
		Name:      "diagnose",
		Usage:     "say why a job died, from its saved output",
		ArgsUsage: "FILE… (- is standard input)",
		Flags: []cli.Flag{
			jsonFlag(),
			&cli.IntFlag{Name: "exit-code", Usage: "the exit code that the job ended with, where it is known"},
		},
		Action: func(c *cli.Context) error {
			if c.NArg() == 0 {
				return usagef("gpurun diagnose slurm-1234.out", "diagnose takes the files that hold the job's output")
			}
			var code *int
			if c.IsSet("exit-code") {
				n := c.Int("exit-code")
				code = &n
			}
			var failed []error
			for _, name := range c.Args().Slice() {
				r, err := diagnose(name, code, s)
				if err != nil {
					failed = append(failed, err)
					continue
				}
				if err := r.print(s, c.Bool("json")); err != nil {
					return err
				}
			}
			if len(failed) > 0 {
				return &usageError{err: errors.Join(failed...)}
			}
			return nil
		},
	}
}

// diagnosis is what gpurun diagnose says of one file.
type diagnosis struct {
	File   string      `json:"file"`
	Cause  cause.Code  `json:"cause"`
	Fatal  bool        `json:"fatal"`
	Phase  cause.Phase `json:"phase"`
	Late   bool        `json:"late"`
	Rank   *int        `json:"rank"`
	Device *string     `json:"device"`
	cause.Figures
	Fragmented bool         `json:"fragmented"`
	Symptoms   []cause.Code `json:"symptoms"`
	Evidence   []quoted     `json:"evidence"`
	Advice     string       `json:"advice"`

	whole strategy.Diagnosis
}

// quoted is a line that the diagnosis rests on.
type quoted struct {
	Line int    `json:"line"`
	Text string `json:"text"`
}

// diagnose reads one file to its end, in constant memory.
func diagnose(name string, code *int, s streams) (diagnosis, error) {
	in := s.in
	if name != "-" {
		f, err := os.Open(name)
		if err != nil {
			return diagnosis{}, fmt.Errorf("read the job's output: %w", err)
		}
		defer f.Close()
		in = f
	}
	var sightings []cause.Sighting
	scanner := cause.NewScanner("stdout")
	scanner.OnSighting = func(found cause.Sighting) { sightings = append(sightings, found) }
	if _, err := io.Copy(scanner, in); err != nil {
		return diagnosis{}, fmt.Errorf("read the job's output: %w", err)
	}
	scanner.Close()

	evidence := strategy.EvidenceFromLog(sightings, code)
	d := strategy.Diagnose(evidence)
	r := diagnosis{
		File: name, Cause: d.Cause, Fatal: d.Fatal, Phase: d.Phase, Late: d.Late, Figures: d.Figures, Fragmented: d.Fragmented,
		Symptoms: []cause.Code{}, Evidence: []quoted{}, Advice: d.Advice, whole: d,
	}
	if d.Rank >= 0 {
		r.Rank = &d.Rank
	}
	if d.Device != "" {
		r.Device = &d.Device
	}
	r.Symptoms = append(r.Symptoms, d.Symptoms...)
	for _, i := range d.Because {
		if s := evidence.Facts[i].Sighting; s != nil {
			r.Evidence = append(r.Evidence, quoted{s.Line, s.Text})
		}
	}
	if r.Advice == "" {
		if c, known := cause.Lookup(d.Cause); known {
			r.Advice = c.Hint
		}
	}
	return r, nil
}

// print says the diagnosis as a paragraph that a person can act on, then the
// lines that prove it; or as one JSON object.
func (r diagnosis) print(s streams, asJSON bool) error {
	if asJSON {
		return json.NewEncoder(s.out).Encode(r)
	}
	sentence := r.whole.Sentence()
	if !r.Fatal {
		sentence = "nothing fatal is shown"
		if r.Cause != cause.None {
			sentence = fmt.Sprintf("%s is shown, and the job went on", r.Cause)
		}
	}
	fmt.Fprintf(s.out, "%s: %s (%s)\n", r.File, sentence, r.Cause)
	if r.Advice != "" {
		fmt.Fprintf(s.out, "  %s\n", r.Advice)
	}
	for _, q := range r.Evidence {
		fmt.Fprintf(s.out, "  line %d: %s\n", q.Line, q.Text)
	}
	return nil
}
