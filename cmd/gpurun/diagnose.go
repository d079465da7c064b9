package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/gpurun/gpurun/strategy"
	"github.com/gpurun/gpurun/strategy/cause"
)

func diagnoseCommand(s streams) *cli.Command {
	return &cli.Command{
		Name:      "diagnose",
		Usage:     "say why a job died, from what it left behind",
		UsageText: "gpurun diagnose [flags] FILE|DIRECTORY…\ngpurun diagnose [flags] --rank 0=FILE --rank 1=FILE …",
		Description: "A file holds a job's output, also packed by gzip or bzip2; - is standard input.\n" +
			"A directory is a run of gpurun, or torchrun's --log-dir; of several runs below it, the newest.",
		Flags: []cli.Flag{
			jsonFlag(),
			&cli.IntFlag{Name: "exit-code", Usage: "the exit code that the job ended with; 128+`N` or -N for signal N", DefaultText: "not known"},
			&cli.StringSliceFlag{Name: "rank", Usage: "the output of one rank, as `K=FILE`; all that are given are one run"},
			&cli.IntFlag{Name: "attempt", Value: -1, Usage: "which attempt `N` of a directory", DefaultText: "the last one"},
		},
		Action: func(c *cli.Context) error {
			if c.NArg() == 0 && len(c.StringSlice("rank")) == 0 {
				return usagef("gpurun diagnose slurm-1234.out", "diagnose takes the files that hold the job's output")
			}
			in := collector{stdin: s.in, attempt: c.Int("attempt")}
			if c.IsSet("exit-code") {
				n := c.Int("exit-code")
				if n < -lastSignal || n > 255 {
					return usagef(fmt.Sprintf("a process ends with 0 to 255; -1 to -%d is for a signal", lastSignal), "--exit-code %d is none that a job ends with", n)
				}
				in.exitCode = &n
			}
			var failed []error
			tell := func(r remains, err error) error {
				if err != nil {
					failed = append(failed, err)
					return nil
				}
				return newDiagnosis(r).print(s, c.Bool("json"))
			}
			if named := c.StringSlice("rank"); len(named) > 0 {
				if err := tell(in.ranks(named)); err != nil {
					return err
				}
			}
			for _, name := range c.Args().Slice() {
				if err := tell(in.collect(name)); err != nil {
					return err
				}
			}
			if len(failed) > 0 {
				return &usageError{err: errors.Join(failed...), hint: "diagnose reads files of output, run directories of gpurun, and torchrun's --log-dir"}
			}
			return nil
		},
	}
}

// lastSignal is the highest signal of Linux (SIGRTMAX in signal(7)).
const lastSignal = 64

// diagnosis is what gpurun diagnose says of one run.
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

// evidenceShown is how many lines of evidence people are shown; --json has all.
const evidenceShown = 20

// quoted is a line that the diagnosis rests on. What no output says, such as a
// signal or a kernel's counter, has line 0.
type quoted struct {
	Line int    `json:"line"`
	Text string `json:"text"`

	where string // the rank and the stream, where there are several
}

func newDiagnosis(in remains) diagnosis {
	d := strategy.Diagnose(in.evidence)
	r := diagnosis{
		File: in.name, Cause: d.Cause, Fatal: d.Fatal, Phase: d.Phase, Late: d.Late, Figures: d.Figures, Fragmented: d.Fragmented,
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
		f := in.evidence.Facts[i]
		switch {
		case f.Finding != nil:
			r.Evidence = append(r.Evidence, quoted{Line: f.Finding.Line, Text: f.Finding.Text, where: whereOf(f, in.several)})
		case f.Kills != nil:
			r.Evidence = append(r.Evidence, quoted{Text: killsOf(f)})
		case f.Source != given:
			r.Evidence = append(r.Evidence, quoted{Text: fact(f)})
		}
	}
	if in.empty {
		r.Advice = "the output is empty, and nothing can be said of how the job ended"
	}
	if r.Advice == "" {
		if c, known := cause.Lookup(d.Cause); known {
			r.Advice = c.Hint
		}
	}
	return r
}

// killsOf says a rise of the kernel's counter with the limit that was hit.
func killsOf(f strategy.Fact) string {
	text := fact(f)
	if f.Kills.Limit > 0 {
		text += ", limit " + strategy.GiB(f.Kills.Limit)
	}
	if f.Kills.Peak > 0 {
		text += ", peak " + strategy.GiB(f.Kills.Peak)
	}
	return text
}

// whereOf names the stream of a finding, where a run left several.
func whereOf(f strategy.Fact, several bool) string {
	switch {
	case !several:
		return ""
	case f.Rank < 0:
		return fmt.Sprintf("%s, ", f.Source)
	}
	return fmt.Sprintf("rank %d, %s, ", f.Rank, f.Source)
}

// print says the diagnosis as a paragraph that a person can act on, then the
// lines that prove it; or as one JSON object.
func (r diagnosis) print(s streams, asJSON bool) error {
	if asJSON {
		return json.NewEncoder(s.out).Encode(r)
	}
	fmt.Fprintf(s.out, "%s: %s\n", r.File, strings.Join(r.paragraph(), ". "))
	for i, q := range r.Evidence {
		if i == evidenceShown {
			fmt.Fprintf(s.out, "  and %d more\n", len(r.Evidence)-i)
			break
		}
		if q.Line == 0 {
			fmt.Fprintf(s.out, "  %s\n", shortened(q.Text))
			continue
		}
		fmt.Fprintf(s.out, "  %sline %d: %s\n", q.where, q.Line, shortened(q.Text))
	}
	return nil
}

// widestLine is how many characters of a line of evidence people are shown. The
// longest out-of-memory message of PyTorch has some 700.
const widestLine = 1000

func shortened(text string) string {
	if chars := []rune(text); len(chars) > widestLine {
		return string(chars[:widestLine]) + " …"
	}
	return text
}

// paragraph is what happened, what the figures mean, and what to do.
func (r diagnosis) paragraph() []string {
	d := r.whole
	first := d.Sentence()
	switch {
	case !r.Fatal && r.Cause == cause.None:
		first = "nothing fatal is shown"
	case r.Cause == cause.Unknown && d.ExitCode == 0:
		first = "the job failed, and nothing here proves why"
	case !r.Fatal:
		first = fmt.Sprintf("%s is shown, and not that the job ended by it", r.Cause)
	}
	parts := []string{fmt.Sprintf("%s (%s)", first, r.Cause)}
	if r.Cause == cause.CUDAOOM || r.Cause == cause.GPUOccupied {
		parts = append(parts, r.holders()...)
	}
	if r.Fragmented {
		parts = append(parts, "what PyTorch holds unused could have served the request: it is fragmented, and PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True is worth a try")
	}
	if r.Late && d.Growth == nil {
		parts = append(parts, "it came after many good steps: a long sample, fragmentation, or a leak that the output does not tell of")
	}
	if len(r.Symptoms) > 0 {
		var names []string
		for _, code := range r.Symptoms {
			names = append(names, string(code))
		}
		parts = append(parts, strings.Join(names, " and ")+" followed from it")
	}
	if r.Advice != "" {
		parts = append(parts, r.Advice)
	}
	return parts
}

// holders says who holds the device's memory.
func (r diagnosis) holders() []string {
	var words []string
	const worthSaying = 1 << 20
	if r.Allocated != nil {
		words = append(words, strategy.GiB(*r.Allocated)+" in tensors")
	}
	if r.ReservedUnallocated != nil && *r.ReservedUnallocated >= worthSaying {
		words = append(words, strategy.GiB(*r.ReservedUnallocated)+" held unused by PyTorch")
	}
	if r.OtherProcess != nil && *r.OtherProcess >= worthSaying {
		words = append(words, strategy.GiB(*r.OtherProcess)+" in other processes")
	}
	if len(words) == 0 {
		return nil
	}
	return []string{"the device had " + strings.Join(words, ", ")}
}
