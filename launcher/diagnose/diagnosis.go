package diagnose

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/gpurun/gpurun/launcher"
	"github.com/gpurun/gpurun/launcher/mask"
	"github.com/gpurun/gpurun/strategy"
	"github.com/gpurun/gpurun/strategy/cause"
)

// A FileDiagnosis is the diagnosis of one run, as gpurun diagnose --json prints it.
type FileDiagnosis struct {
	File   string      `json:"file"`
	Files  []string    `json:"files"` // that were read
	Cause  cause.Code  `json:"cause"`
	Fatal  bool        `json:"fatal"`
	Phase  cause.Phase `json:"phase"`
	Late   bool        `json:"late"`
	Rank   *int        `json:"rank"`
	Device *string     `json:"device"`
	cause.Figures
	Fragmented bool         `json:"fragmented"`
	Symptoms   []cause.Code `json:"symptoms"`
	Evidence   []Quote      `json:"evidence"`
	Advice     string       `json:"advice"`
	// Rule is the rule that chose the cause, and Starts are the starts of the job in the output,
	// if there are several. The diagnosis is that of the last one.
	Rule   strategy.Rule    `json:"rule"`
	Starts []StartDiagnosis `json:"starts"`
	// Running: the run has not ended.
	Running bool `json:"running,omitempty"`

	whole strategy.Diagnosis
	// outside is the memory that PyTorch does not hold, in bytes; 0: not known.
	outside int64
}

// evidenceShown is how many lines of evidence are shown; --json has all.
const evidenceShown = 20

// A Quote is a line that proves the diagnosis. Evidence outside the output, such as a signal or
// a kernel's counter, has line 0.
type Quote struct {
	Line int    `json:"line"`
	Text string `json:"text"`

	where string // the rank and the stream, where there are several
}

// Diagnose finds out why a run ended.
func Diagnose(in Artifacts) FileDiagnosis {
	d := strategy.Diagnose(in.Evidence)
	r := FileDiagnosis{
		File: in.Name, Files: append([]string{}, in.Files...), Cause: d.Cause, Fatal: d.Fatal, Phase: d.Phase, Late: d.Late,
		Figures:    d.Figures,
		Fragmented: d.Fragmented, Symptoms: []cause.Code{}, Evidence: quotes(d, in), Rule: d.Rule(), Starts: startsOf(in),
		whole: d,
	}
	if d.Rank >= 0 {
		r.Rank = &d.Rank
	}
	if d.Device != "" {
		r.Device = &d.Device
	}
	r.outside = d.OutsidePyTorch(in.Evidence)
	r.Symptoms = append(r.Symptoms, d.Symptoms...)
	r.Running, r.Advice = in.Running, launcher.Advice(d, in.Evidence, in.Ceiling)
	switch {
	case in.Empty:
		r.Advice = "the output is empty and does not show how the job ended: read the file of its stderr, or the scheduler's record, and add --exit-code N"
	case !in.Running && !slices.ContainsFunc(in.Evidence.Facts, func(f strategy.Fact) bool { return f.Exit() != nil }):
		r.Advice = withMissing(r, in.Evidence)
	}
	return r
}

// withMissing is the advice for output that does not show how the job ended: it names what would.
func withMissing(r FileDiagnosis, ev strategy.Evidence) string {
	complaint := slices.IndexFunc(ev.Facts, func(f strategy.Fact) bool {
		return f.Finding() != nil && f.Finding().Says(cause.SaysComplaint)
	})
	switch {
	case r.Fatal && r.Cause == cause.Preempted && r.Advice == "" && slices.ContainsFunc(r.Evidence, func(q Quote) bool {
		return strings.Contains(q.Text, "KeyboardInterrupt") || strings.Contains(q.Text, "SIGINT")
	}):
		return "SIGINT ended it: Ctrl-C in its terminal, a notebook's interrupt, or kill -INT; schedulers send SIGTERM"
	case r.Fatal && r.Cause == cause.Preempted && r.Advice == "":
		return "the output does not show who stopped it: the scheduler's record does (sacct -j JOB, kubectl describe pod POD)"
	case r.Fatal || r.Cause == cause.None && r.Advice != "":
		return r.Advice
	case r.Cause == cause.None && complaint >= 0:
		return fmt.Sprintf("its last line may be an error, %q: add --exit-code N if the job failed",
			mask.CutText(ev.Facts[complaint].Finding().Text, widestComplaint))
	case r.Cause == cause.None:
		return "if the job failed, its error is not in this output: name the file of its stderr, too, or add --exit-code N"
	}
	return "add --exit-code N if the job failed: " + r.Advice
}

// widestComplaint is how many characters of the last line the advice quotes.
const widestComplaint = 120

// quotes returns the facts that prove a diagnosis.
func quotes(d strategy.Diagnosis, in Artifacts) []Quote {
	all := []Quote{}
	for _, f := range d.Facts(&in.Evidence) {
		switch {
		case f.Finding() != nil:
			all = append(all, Quote{Line: f.Finding().Line, Text: f.Finding().Text, where: whereOf(f, in.Several)})
		case strategy.As[*strategy.Kills](f) != nil:
			all = append(all, Quote{Text: killsOf(f)})
		case f.Source != given:
			all = append(all, Quote{Text: launcher.Describe(f)})
		}
	}
	return all
}

// killsOf describes a rise of the kernel's counter, with the limit that was reached.
func killsOf(f strategy.Fact) string {
	text := launcher.Describe(f)
	kills := strategy.As[*strategy.Kills](f)
	if kills.Limit > 0 {
		text += ", limit " + strategy.GiB(kills.Limit)
	}
	if kills.Peak > 0 {
		text += ", peak " + strategy.GiB(kills.Peak)
	}
	return text
}

// whereOf names the stream of a finding, if there are several.
func whereOf(f strategy.Fact, several bool) string {
	switch {
	case !several:
		return ""
	case f.Rank < 0:
		return f.Reporter() + ", "
	}
	return fmt.Sprintf("rank %d, %s, ", f.Rank, f.Reporter())
}

// shapes masks secrets by their names and their form: the job's command is not known.
var shapes *mask.Masker

// WriteTo writes the diagnosis for people: a paragraph, then the lines that prove it, without
// secrets, and with control characters escaped.
func (r FileDiagnosis) WriteTo(w io.Writer) (int64, error) {
	var b strings.Builder
	b.WriteString(shapes.Sprintf("%s: %s\n", r.File, strings.Join(r.paragraph(), "; ")))
	for _, line := range r.earlier() {
		b.WriteString(shapes.Sprintf("  %s\n", line))
	}
	for i, q := range r.Evidence {
		if i == evidenceShown {
			fmt.Fprintf(&b, "  and %d more\n", len(r.Evidence)-i)
			break
		}
		if q.Line == 0 {
			b.WriteString(shapes.Sprintf("  %s\n", mask.CutText(q.Text, widestLine)))
			continue
		}
		b.WriteString(shapes.Sprintf("  %sline %d: %s\n", q.where, q.Line, mask.CutText(q.Text, widestLine)))
	}
	n, err := io.WriteString(w, b.String())
	return int64(n), err
}

// widestLine is how many characters of a line of evidence are shown. The longest
// out-of-memory message of PyTorch has about 700.
const widestLine = 1000

// paragraph returns what happened, what the figures mean, and what to do.
func (r FileDiagnosis) paragraph() []string {
	d := r.whole
	first := d.Sentence()
	switch {
	case r.Running && !r.Fatal:
		return []string{fmt.Sprintf("the run has not ended, and its output shows nothing fatal so far (%s)", r.Cause)}
	case r.Running:
		first = "the run has not ended; so far its output shows " + first
	case !r.Fatal && r.Cause == cause.None:
		first = "the output shows nothing fatal"
	case r.Cause == cause.Unknown && d.ExitCode == 0 && !d.Named():
		first = "the job failed, and nothing here proves why"
	case !r.Fatal:
		entry, _ := cause.Lookup(r.Cause)
		first = entry.Title + ", but the output does not show that this ended the job"
	}
	parts := []string{fmt.Sprintf("%s (%s)", first, r.Cause)}
	if r.Cause == cause.CUDAOOM || r.Cause == cause.GPUOccupied {
		parts = append(parts, r.holders()...)
	}
	if r.Fragmented {
		parts = append(parts,
			"the memory that PyTorch reserved and did not use would have been enough, but it is fragmented: try PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True")
	}
	if r.Late && d.Growth == nil {
		parts = append(parts, "it came after many good steps: suspect a long sample, fragmentation or a leak")
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

// holders returns what holds the device's memory.
func (r FileDiagnosis) holders() []string {
	var words []string
	const worthSaying = 1 << 20
	if r.Allocated != nil && *r.Allocated > 0 {
		words = append(words, strategy.GiB(*r.Allocated)+" in tensors")
	}
	if r.ReservedUnallocated != nil && *r.ReservedUnallocated >= worthSaying {
		words = append(words, strategy.GiB(*r.ReservedUnallocated)+" held unused by PyTorch")
	}
	if r.Capacity != nil && r.outside >= *r.Capacity/8 { // CUDA itself takes less
		words = append(words, strategy.GiB(r.outside)+" outside PyTorch")
	}
	if r.OtherProcess != nil && *r.OtherProcess >= worthSaying {
		words = append(words, strategy.GiB(*r.OtherProcess)+" in other processes")
	}
	if len(words) == 0 {
		return nil
	}
	return []string{"the device had " + strings.Join(words, ", ")}
}
