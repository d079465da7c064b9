package show

import (
	"time"

	"github.com/gpurun/gpurun/launcher"
	"github.com/gpurun/gpurun/strategy"
)

// Replayed prints one decision with its evidence, as this version of gpurun decides now,
// after the decision that another version recorded.
func (p *Page) Replayed(r launcher.Replayed, version string) {
	if r.Recalled != nil {
		p.Printf("%s\n", r.Recalled)
	}
	if r.Recorded != nil {
		p.Printf("then, by gpurun %s: %s\n", r.Recorded.Version, r.Recorded.Decision.Reason)
		p.rule(r.Recorded.Decision)
		p.Printf("now, by gpurun %s: ", version)
	}
	p.Printf("%s\n", r.Decision.Reason)
	p.rule(r.Decision)
	if words := r.Decision.Training.Words(""); words != "" {
		p.Printf("  training: %s\n", words)
	}
	if why := r.Evidence.Loss().Differs; why != "" {
		p.Printf("  this attempt's training: %s\n", strategy.Average.Words(why))
	}
	p.diagnosed(r)
	for _, line := range filled(r.Diagnosis, &r.Evidence).Words() {
		p.Printf("  %s\n", line)
	}
	for _, again := range r.InPlace {
		p.Printf("  in place: %s\n", again.Sentence())
		if again.Times > 1 {
			p.Printf("  in place: %s\n", again.Repeats())
		}
		if words := again.Later(); words != "" {
			p.Printf("    %s\n", words)
		}
		for _, trial := range again.Trials {
			p.Printf("    %s\n", trial.Words())
		}
	}
	if f := r.Refused; f != nil {
		p.Printf("  not done again in place, in %s at step %d: %s\n", f.Phase, f.Step, f.Reason)
	}
	if r.Permitted != nil && (len(r.InPlace) > 0 || r.Refused != nil || r.PermittedThen != nil) {
		p.Printf("  allowed in place: %s\n", r.Permitted)
	}
	if r.PermittedThen != nil {
		p.Printf("  allowed in place then: %s\n", r.PermittedThen)
	}
	if r.Stopped != nil {
		p.Printf("  %s after the start: %s\n", r.Stopped.At.Sub(r.Evidence.Started).Round(time.Millisecond), r.Stopped)
	}
	if r.Decision.Late != "" {
		p.Printf("  not begun at once: %s\n", r.Decision.Late)
	}
	if why := r.Decision.Unpredicted; why != "" {
		p.Printf("  one remedy at a time: %s\n", why)
	}
	for _, o := range r.Decision.Outvoted {
		p.Printf("  rather than %s, predicted %s: %s\n", o.Plan, strategy.Interval(o.Expected.Mean, o.Expected.Bound),
			o.Reason)
	}
	for _, k := range r.Decision.Skipped {
		p.Printf("  not %s: %s\n", k.Remedy, k.Reason)
	}
	switch {
	case r.Recorded != nil && r.Same:
		p.Printf("  the same as was decided then\n")
	case r.Recorded != nil:
		p.Printf("  differs from what was decided then\n")
	case !r.Same:
		p.Printf("  differs from what was decided then: %s\n", r.Then)
	}
}

// diagnosed prints the facts that support the diagnosis, and the rules by which it was made.
func (p *Page) diagnosed(r launcher.Replayed) {
	for _, f := range r.Diagnosis.Facts(&r.Evidence) {
		p.Printf("  because %s\n", launcher.Describe(f))
	}
	for _, rule := range r.Diagnosis.Rules {
		p.Printf("  diagnosed by rule %s: %s\n", rule, rule.Words())
	}
}

func (p *Page) rule(d strategy.Decision) {
	p.Printf("  rule %s", d.Rule)
	if d.Remedy != "" {
		p.Printf(", remedy %s", d.Remedy)
	}
	p.Printf("\n")
}
