package console

import (
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/gpurun/gpurun/launcher"
	"github.com/gpurun/gpurun/launcher/mask"
	"github.com/gpurun/gpurun/launcher/ranklog"
	"github.com/gpurun/gpurun/launcher/runstate"
	"github.com/gpurun/gpurun/model"
	"github.com/gpurun/gpurun/strategy"
	"github.com/gpurun/gpurun/strategy/cause"
	"github.com/gpurun/gpurun/strategy/memory"
)

// finish prints the summary: what happened, what was changed, and what to do.
func (p *People) finish(v launcher.Verdict) {
	p.hints = nil
	p.apart(v)
	if v.Outcome == strategy.Trained && len(v.Attempts) == 1 {
		p.trainedAtOnce(v)
		return
	}
	if v.Outcome != strategy.Trained {
		if last := p.last(); last != nil {
			p.rootCause(last)
			for _, line := range filled(last.Diagnosis, &last.Evidence).Words() {
				p.say("%s", line)
			}
		}
		for _, a := range v.Attempts {
			p.pressure(a, fmt.Sprintf("attempt %d: ", a.N))
		}
		p.ending(v)
		return
	}
	p.say("summary: %s after %s in %s", v.Outcome.Words(), strategy.Count(len(v.Attempts), "attempt"), Brief(p.total()))
	over, omitted := p.listed()
	for i := range over {
		if i == runstate.First && omitted > 0 {
			p.say("%s", p.more(omitted))
		}
		a := &over[i]
		p.say("  attempt %d%s: %s", a.N, p.course(a), outcome(a))
		if said := filled(a.Diagnosis, &a.Evidence).Brief(); said != "" {
			p.say("    %s", said)
		}
	}
	for _, a := range v.Attempts {
		if a.Price != nil && a.Price.String() != "" {
			p.say("  %s", a.Price)
		}
		p.pressure(a, fmt.Sprintf("attempt %d: ", a.N))
	}
	if words := p.state.TimeWords(v.GPUTime); words != "" {
		p.say("  %s", words)
	}
	p.headroom()
	p.proposal(v)
	p.faster(v)
	p.say("logs: %s%s", filepath.Join(p.Dir, "attempt-*", "rank*"), p.otherNodes())
	p.reported(p.say)
}

// trainedAtOnce prints the summary of a run whose first attempt trained.
func (p *People) trainedAtOnce(v launcher.Verdict) {
	p.say("trained in %s; logs: %s", Brief(p.total()), p.Dir)
	if words := strategy.InPlaceWords(v.Attempts[0].InPlace); words != "" {
		p.say("  %s", words)
		if words := p.state.TimeWords(v.GPUTime); words != "" {
			p.say("  %s", words)
		}
	}
	if p.armed != "" && len(v.Attempts[0].InPlace) == 0 {
		p.say("  it began with %s, which an earlier run needed; --fresh begins as written", p.armed)
	}
	p.pressure(v.Attempts[0], "")
	p.headroom()
	if len(v.Attempts[0].InPlace) > 0 {
		p.proposal(v)
	}
	if lost := v.Attempts[0].Untaken.Lost(); lost != "" {
		p.say("warning: trained, but %s", lost)
	}
	p.faster(v)
	p.reported(p.chat)
}

// pressure warns of memory that was short in an attempt, without an error.
func (p *People) pressure(a launcher.AttemptSummary, of string) {
	for _, words := range a.MemoryPressure {
		p.say("warning: %s%s", of, words)
	}
	if words := strategy.RetriesWords(a.Retries); words != "" && len(a.MemoryPressure) == 0 {
		p.say("  %s%s", of, words)
	}
}

// apart warns if each rank trained the job by itself.
func (p *People) apart(v launcher.Verdict) {
	if n := len(v.Attempts); n > 0 && v.Outcome == strategy.Trained && v.Attempts[n-1].Alone > 0 {
		p.say("warning: trained %d times rather than once: each rank trained the whole job by itself, without a process group", v.Attempts[n-1].Alone)
	}
}

// otherNodes returns where the logs of other nodes' ranks are, if they are visible here.
func (p *People) otherNodes() string {
	pattern := filepath.Join("attempt-*", "node-*")
	if found, _ := fs.Glob(os.DirFS(p.Dir), pattern); len(found) == 0 {
		return ""
	}
	return "; other nodes: " + filepath.Join(pattern, "rank*")
}

// Verdict shows how a run ended, as the summary at its end does.
func Verdict(w io.Writer, dir string, run *runstate.Run, v launcher.Verdict, report string) {
	p := People{W: w, Dir: dir, Report: report, state: *run}
	p.state.CutOff() // gpurun was killed during the last attempt
	p.finish(v)
}

// reported prints the path of the run's report, if there is one.
func (p *People) reported(say func(format string, args ...any)) {
	if p.Report != "" {
		say("report: %s", p.Report)
	}
}

// advise prints a hint, and keeps it for the report.
func (p *People) advise(format string, args ...any) {
	hint := p.line(format, args...)
	p.hints = append(p.hints, hint)
	fmt.Fprintf(p.W, "gpurun: hint: %s\n", hint)
}

// Hints are the hints in the summary of a run.
func (p People) Hints(run *runstate.Run) []string {
	p.W, p.state, p.hints = io.Discard, *run, nil
	if run.Verdict != nil {
		p.finish(*run.Verdict)
	}
	return p.hints
}

// course returns how long an attempt ran, and from which checkpoint.
func (p *People) course(a *runstate.AttemptState) string {
	said := ""
	if lasted := p.lasted(a); lasted > 0 {
		said = ", " + Brief(lasted).String()
	}
	if a.Checkpoint != "" {
		said += ", from checkpoint " + a.Checkpoint
	}
	return said
}

// lasted returns how long an attempt ran. If it was cut off, its last sample counts as its end.
func (p *People) lasted(a *runstate.AttemptState) time.Duration {
	if a.Phase != runstate.CutOff || a.At.IsZero() {
		return a.Lasted()
	}
	last, err := os.Stat(filepath.Join(p.Dir, fmt.Sprintf("attempt-%d", a.N), model.SamplesFile))
	if err != nil {
		return 0
	}
	return max(last.ModTime().Sub(a.At), 0)
}

// Brief rounds a time for people.
func Brief(d time.Duration) time.Duration {
	if d < 10*time.Second {
		return d.Round(10 * time.Millisecond)
	}
	return d.Round(time.Second)
}

func (p *People) total() time.Duration {
	sum := p.state.Omitted.Lasted
	for _, s := range p.state.Omitted.CutOff {
		sum += p.lasted(&runstate.AttemptState{Started: s, Phase: runstate.CutOff})
	}
	over := p.state.Over()
	for i := range over {
		sum += p.lasted(&over[i])
	}
	return sum
}

func outcome(a *runstate.AttemptState) string {
	if a.Phase != runstate.Decided {
		return "interrupted"
	}
	words := a.Diagnosis.Sentence()
	switch {
	case a.Decision.Rule == "climb":
		words = "stopped for a faster plan"
	case a.Evidence.Halted:
		words = "stopped"
	case a.Evidence.Unstarted != nil:
		words = "could not be started"
	case !a.Diagnosis.Fatal && !a.Decision.Relaunch:
		words = a.Decision.Outcome.Words()
	}
	if lost := a.Decision.Ineffective.Lost(); lost != "" {
		words += "; " + lost
	}
	if again := strategy.InPlaceWords(a.Again); again != "" {
		words += "; " + again
	}
	words += peaks(a)
	if len(a.Decision.Changed) > 0 {
		words += fmt.Sprintf(" → %s", a.Decision.Changed)
	}
	return words
}

// proposal prints how the plan that trained differs from the job as written, what processes changed in place, and how
// to start the next run with that.
func (p *People) proposal(v launcher.Verdict) {
	if len(v.Attempts) == 0 {
		return
	}
	last := v.Attempts[len(v.Attempts)-1]
	changed := p.state.Began.Plan.Changed(last.Used())
	if len(changed) > 0 {
		words := changed.String()
		if last.Training.Weaker(strategy.Exact) {
			words += "; " + last.Training.Words("")
		}
		p.say("  changed from the job as written: %s", words)
	}
	kept, words := strategy.KeptInPlace(last.InPlace)
	if words != "" {
		p.say("  %s", words)
	}
	if p.Propose == nil || len(changed)+len(kept) == 0 {
		return
	}
	proposal, err := p.Propose(last.Used().With(kept), last.N)
	if err != nil {
		return // no hint is better than an error here
	}
	if a := p.state.Last(); a != nil {
		proposal.Model = a.Evidence.LargestModel()
	}
	if words != "" && proposal.Armed {
		p.say("  the next run begins with it; --fresh begins as written")
	}
	masked := proposal
	masked.Words, masked.Env = p.Mask.Words(proposal.Words), p.Mask.Env(proposal.Env)
	for _, hint := range (paste{masked}).hints() {
		p.advise("%s", hint)
	}
	if !slices.Equal(paste{masked}.hints(), paste{proposal}.hints()) {
		p.advise("%s replaces a secret there; %s has the whole command", mask.Mask, filepath.Join(p.Dir, fmt.Sprintf("attempt-%d", last.N), "command.json"))
	}
}

// faster prints a faster plan that would have fitted.
func (p *People) faster(v launcher.Verdict) {
	if v.Proposal != "" {
		p.advise("%s", v.Proposal)
	}
}

// rootCause prints the failing rank's last traceback in a block like torchrun's, which log
// scrapers look for.
func (p *People) rootCause(a *runstate.AttemptState) {
	if !a.Diagnosis.Fatal || a.Diagnosis.Rank < 0 {
		return
	}
	const bar = "============================================================"
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n%s FAILED\n%s\n", bar, p.line("%s", p.state.Began.Name), strings.ReplaceAll(bar, "=", "-"))
	fmt.Fprintf(&b, "Root Cause (first observed failure):\n")
	fmt.Fprintf(&b, "  rank      : %d\n", a.Diagnosis.Rank)
	fmt.Fprintf(&b, "  exitcode  : %s\n", exitCode(a))
	fmt.Fprintf(&b, "  logs      : %s\n", p.line("%s", ranklog.FolderOf(filepath.Join(p.Dir, fmt.Sprintf("attempt-%d", a.N)), a.Diagnosis.Rank)))
	lines := traceback(a)
	if p.justShown(a) {
		fmt.Fprintf(&b, "  traceback : above\n")
		lines = lines[len(lines)-1:]
	} else {
		fmt.Fprintf(&b, "  traceback :\n")
	}
	for _, line := range lines {
		fmt.Fprintf(&b, "    %s\n", p.line("%s", line))
	}
	fmt.Fprintf(&b, "%s\n", bar)
	fmt.Fprint(p.W, b.String())
}

// justShown reports whether the job's output with the traceback is right above the summary. That is so only
// for a single rank, since the output of several is mixed.
func (p *People) justShown(a *runstate.AttemptState) bool {
	if !p.SameTerminal || p.state.Began.Job.Ranks != 1 || p.over() <= p.recalled {
		return false
	}
	lines := launcher.Traceback(a.Evidence, a.Diagnosis)
	return len(lines) > 0 && slices.ContainsFunc(a.Evidence.Facts, func(f strategy.Fact) bool {
		own := f.Source == "stderr" || f.Source == "stdout"
		return own && f.Finding != nil && f.Finding.Raised && f.Finding.Text == lines[len(lines)-1]
	})
}

func exitCode(a *runstate.AttemptState) string {
	exit := a.Evidence.ExitOf(a.Diagnosis.Rank)
	switch {
	case exit == nil:
		return "N/A"
	case exit.Signal != 0:
		return fmt.Sprintf("-%d (pid: %d)", exit.Signal, exit.PID)
	}
	return fmt.Sprintf("%d (pid: %d)", exit.Code, exit.PID)
}

// tracebackShown is how many lines of a traceback are shown; the verdict has more.
const tracebackShown = 13

// traceback returns the last traceback of the failing rank, or the line that proves the diagnosis.
func traceback(a *runstate.AttemptState) []string {
	if lines := launcher.Traceback(a.Evidence, a.Diagnosis); len(lines) > 0 {
		return cause.Shown(lines, tracebackShown)
	}
	for _, f := range a.Diagnosis.Facts(&a.Evidence) {
		if f.Finding != nil {
			return []string{f.Finding.Text}
		}
	}
	if a.Diagnosis.Error != "" {
		return []string{a.Diagnosis.Error}
	}
	return []string{"none was printed; see the end of its stderr.log"}
}

// predicted returns the predicted peak of an attempt's plan; empty if not known.
func predicted(p *memory.Prediction) string {
	if p == nil || p.Mean == 0 {
		return ""
	}
	return "; predicted peak " + strategy.Interval(p.Mean, p.Bound)
}

// peaks returns an attempt's predicted and measured peak: "; predicted 36.1–37.8, measured 36.9 of 40.0 GiB". A job
// that ran out of memory needs at least what it held.
func peaks(a *runstate.AttemptState) string {
	words := strategy.PeakWords(a.Expected, a.Peak(), a.Diagnosis.OutOfMemory(), a.Decision.Headroom)
	if words == "" || a.Expected == nil && a.Decision.Headroom == nil {
		return ""
	}
	return "; " + words
}

// headroom prints how much memory was free, and which larger micro batch or smaller card fits.
func (p *People) headroom() {
	if last := p.last(); last != nil && last.Decision.Headroom != nil {
		p.chat("  %s", last.Decision.Headroom.Words())
	}
}

// filled returns the snapshot of an attempt that ran out of memory on the GPU, if possible that of the rank
// that failed first.
func filled(d strategy.Diagnosis, e *strategy.Evidence) (s strategy.Snapshot) {
	all := e.Snapshots()
	if !d.Fatal || d.Cause != cause.CUDAOOM || len(all) == 0 {
		return s
	}
	return all[max(0, slices.IndexFunc(all, func(s strategy.Snapshot) bool { return s.Rank == d.Rank }))]
}
