package diagnose

import (
	"fmt"
	"io"
	"strings"

	"github.com/gpurun/gpurun/launcher"
	"github.com/gpurun/gpurun/launcher/mask"
	"github.com/gpurun/gpurun/strategy"
	"github.com/gpurun/gpurun/strategy/cause"
)

// A StartDiagnosis is the diagnosis of one of several starts of a job in the same output.
type StartDiagnosis struct {
	Line int `json:"line"` // its first line
	// Sign is the sign of its beginning; empty for the first start.
	Sign     cause.Sign    `json:"sign,omitempty"`
	Cause    cause.Code    `json:"cause"`
	Fatal    bool          `json:"fatal"`
	Phase    cause.Phase   `json:"phase"`
	Rank     *int          `json:"rank"`
	Rule     strategy.Rule `json:"rule"`
	Evidence []Quote       `json:"evidence"`
	Advice   string        `json:"advice"`

	text  string // of its first line
	whole strategy.Diagnosis
}

// startsOf diagnoses each start, if there are several.
func startsOf(in Artifacts) []StartDiagnosis {
	starts := []StartDiagnosis{}
	for _, s := range strategy.Starts(in.Evidence) {
		d := s.Diagnosis
		one := StartDiagnosis{
			Line: s.Line, Sign: s.Sign, Cause: d.Cause, Fatal: d.Fatal, Phase: d.Phase, Rule: d.Rule(), Evidence: quotes(d, in),
			Advice: launcher.Advice(d, in.Evidence, in.Ceiling), text: s.Text, whole: d,
		}
		if d.Rank >= 0 {
			one.Rank = &d.Rank
		}
		starts = append(starts, one)
	}
	return starts
}

// earlier describes the starts before the last one, which the answer is about.
func (r FileDiagnosis) earlier() []string {
	n := len(r.Starts)
	if n < 2 {
		return nil
	}
	const shown = 5
	lines := []string{fmt.Sprintf("the output holds %d starts of the job; this is the last, from line %d", n,
		r.Starts[n-1].Line)}
	for i, s := range r.Starts[max(0, n-1-shown) : n-1] {
		what := fmt.Sprintf("%s (%s)", s.whole.Sentence(), s.Cause)
		if !s.Fatal {
			what = fmt.Sprintf("nothing fatal (%s)", s.Cause)
		}
		lines = append(lines, fmt.Sprintf("start %d, from line %d: %s", max(0, n-1-shown)+i+1, s.Line, what))
	}
	return lines
}

// WriteRules writes the rules by which the diagnosis was made, and the signs of the starts.
func (r FileDiagnosis) WriteRules(w io.Writer) error {
	var b strings.Builder
	for _, s := range r.Starts {
		if s.Sign != "" {
			b.WriteString(shapes.Sprintf("  start at line %d, by %s: %s\n", s.Line, s.Sign, mask.CutText(s.text, widestLine)))
		}
	}
	for _, rule := range r.whole.Rules {
		fmt.Fprintf(&b, "  rule %s: %s\n", rule, rule.Words())
	}
	_, err := io.WriteString(w, b.String())
	return err
}
