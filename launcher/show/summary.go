package show

import (
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/gpurun/gpurun/launcher"
	"github.com/gpurun/gpurun/launcher/journal"
	"github.com/gpurun/gpurun/launcher/mask"
	"github.com/gpurun/gpurun/launcher/ranks"
	"github.com/gpurun/gpurun/strategy"
	"github.com/gpurun/gpurun/strategy/cause"
	"github.com/gpurun/gpurun/strategy/memory"
)

// finish prints the summary: what happened, what was changed, and what to do. Explain and the report have more.
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
		}
		for _, a := range v.Attempts {
			p.pressure(a, fmt.Sprintf("attempt %d: ", a.N))
		}
		p.ending(v)
		return
	}
	training := ""
	if n := len(v.Attempts); n > 0 && v.Attempts[n-1].Training.Weaker(strategy.Exact) {
		training = "; " + v.Attempts[n-1].Training.Words("")
	}
	if last := p.last(); last != nil && last.Decision.Ineffective.Lost() != "" {
		training += "; " + last.Decision.Ineffective.Lost()
	}
	p.say("summary: %s%s%s%s", p.tally(v), training, p.used(v), p.headroom())
	for _, line := range p.tried(len(v.Attempts) > firstTried+lastTried) {
		fmt.Fprintln(p.W, line)
	}
	for _, a := range v.Attempts {
		p.pressure(a, fmt.Sprintf("attempt %d: ", a.N))
	}
	p.proposal(v)
	p.faster(v)
	p.say("%s", p.places())
}

// tally is how a run ended, after how many attempts, and in what time.
func (p *People) tally(v launcher.Verdict) string {
	return fmt.Sprintf("%s after %s in %s", v.Outcome.WordsOf(v.Code), strategy.Count(len(v.Attempts), "attempt"),
		Brief(p.total()))
}

// used is the time of the GPUs that was lost, for the end of a sentence.
func (p *People) used(v launcher.Verdict) string {
	if words := p.state.TimeWords(v.GPUTime); words != "" {
		return "; " + words
	}
	return ""
}

// places are where logs and report are.
func (p *People) places() string {
	logs := fmt.Sprintf("logs: %s%s", filepath.Join(p.Dir, "attempt-*", "rank*"), p.otherNodes())
	if p.Report == "" {
		return logs
	}
	return fmt.Sprintf("report: %s; %s", p.Report, logs)
}

// trainedAtOnce prints the summary of a run whose first attempt trained.
func (p *People) trainedAtOnce(v launcher.Verdict) {
	logs := "logs"
	if p.Report != "" && !p.Quiet {
		logs = "logs and report"
	}
	a := v.Attempts[0]
	p.say("trained in %s%s; %s: %s", Brief(p.total()), p.headroom(), logs, p.Dir)
	if words := strategy.InPlaceWords(a.InPlace); words != "" {
		p.say("  %s%s%s", words, p.used(v), p.kept(a))
	}
	if p.armed != "" && len(a.InPlace) == 0 {
		p.say("  it began with %s, which an earlier run needed; --fresh begins as written", p.armed)
	}
	p.pressure(a, "")
	if len(a.InPlace) > 0 {
		p.proposal(v)
	}
	if lost := a.Untaken.Lost(); lost != "" {
		p.say("warning: trained, but %s", lost)
	}
	p.faster(v)
}

// kept is what stays changed in the processes, for the end of a sentence.
func (p *People) kept(a launcher.AttemptSummary) string {
	kept, words := strategy.KeptInPlace(a.InPlace)
	if words == "" {
		return ""
	}
	if p.Propose != nil {
		if proposal, err := p.Propose(a.Used().With(kept), p.arguments(), a.N); err == nil && proposal.Armed {
			words += ", and so does the next run; --fresh begins as written"
		}
	}
	return "; " + words
}

// arguments are the likely knobs that the last attempt changed.
func (p *People) arguments() strategy.Arguments {
	if a := p.state.Last(); a != nil {
		return a.Arguments
	}
	return nil
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

// WriteVerdict shows how a run ended, as the summary at its end does.
func WriteVerdict(w io.Writer, dir string, run *journal.Run, v launcher.Verdict, report string) {
	p := People{W: w, Dir: dir, Report: report, state: *run}
	p.state.CutOff() // gpurun was killed during the last attempt
	p.finish(v)
}

// advise prints a hint, and keeps it for the report.
func (p *People) advise(format string, args ...any) {
	fmt.Fprintf(p.W, "gpurun: hint: %s\n", p.keep(format, args...))
}

// keep keeps a hint for the report.
func (p *People) keep(format string, args ...any) string {
	p.hints = append(p.hints, p.line(format, args...))
	return p.hints[len(p.hints)-1]
}

// Hints are the hints in the summary of a run.
func (p People) Hints(run *journal.Run) []string {
	p.W, p.state, p.hints = io.Discard, *run, nil
	if run.Verdict != nil {
		p.finish(*run.Verdict)
	}
	return p.hints
}

// course returns how long an attempt ran, and from which checkpoint.
func (p *People) course(a *journal.AttemptState) string {
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
func (p *People) lasted(a *journal.AttemptState) time.Duration {
	if a.Phase != journal.CutOff || a.At.IsZero() {
		return a.Lasted()
	}
	last, err := os.Stat(filepath.Join(p.Dir, fmt.Sprintf("attempt-%d", a.N), strategy.SamplesFile))
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
		sum += p.lasted(&journal.AttemptState{Started: s, Phase: journal.CutOff})
	}
	over := p.state.Over()
	for i := range over {
		sum += p.lasted(&over[i])
	}
	return sum
}

func outcome(a *journal.AttemptState) string {
	if a.Phase != journal.Decided {
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
		words = a.Decision.Outcome.WordsOf(a.Decision.Code)
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

// proposal prints how to start the next run with the plan that trained; how the job's own code can have what gpurun
// changed in its process is for the report.
func (p *People) proposal(v launcher.Verdict) {
	if len(v.Attempts) == 0 || p.Propose == nil {
		return
	}
	last := v.Attempts[len(v.Attempts)-1]
	kept, _ := strategy.KeptInPlace(last.InPlace)
	if len(p.state.Began.Plan.Changed(last.Used()))+len(kept) == 0 {
		return
	}
	proposal, err := p.Propose(last.Used().With(kept), p.arguments(), last.N)
	if err != nil {
		return // no hint is better than an error here
	}
	if a := p.state.Last(); a != nil {
		proposal.Model = a.Evidence.LargestModel()
	}
	masked := paste{proposal}
	masked.Words, masked.Env = p.Mask.Words(proposal.Words), p.Mask.Env(proposal.Env)
	for _, hint := range masked.hints() {
		p.advise("%s", hint)
	}
	if !slices.Equal(masked.hints(), paste{proposal}.hints()) {
		p.advise("%s replaces a secret there; %s has the whole command", mask.Mask,
			filepath.Join(p.Dir, fmt.Sprintf("attempt-%d", last.N), "command.json"))
	}
	for _, hint := range masked.codeHints() {
		p.keep("%s", hint)
	}
}

// faster prints a faster plan that would have fitted. One hint is enough on the console.
func (p *People) faster(v launcher.Verdict) {
	switch {
	case v.Proposal == "":
	case len(p.hints) > 0:
		p.keep("%s", v.Proposal)
	default:
		p.advise("%s", v.Proposal)
	}
}

// rootCause names the failing rank in the words of torchrun, which log scrapers look for.
func (p *People) rootCause(a *journal.AttemptState) {
	if a.Diagnosis.Fatal && a.Diagnosis.Rank >= 0 {
		p.say("Root Cause (first observed failure): rank %d, exitcode  : %s, logs: %s", a.Diagnosis.Rank, exitCode(a),
			ranks.LogFolder(filepath.Join(p.Dir, fmt.Sprintf("attempt-%d", a.N)), a.Diagnosis.Rank))
	}
}

func exitCode(a *journal.AttemptState) string {
	exit := a.Evidence.ExitOf(a.Diagnosis.Rank)
	switch {
	case exit == nil:
		return "N/A"
	case exit.Signal != 0:
		return fmt.Sprintf("-%d (pid: %d)", exit.Signal, exit.PID)
	}
	return fmt.Sprintf("%d (pid: %d)", exit.Code, exit.PID)
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
func peaks(a *journal.AttemptState) string {
	words := strategy.PeakWords(a.Expected, a.Peak(), a.Diagnosis.OutOfMemory(), a.Decision.Headroom)
	if words == "" || a.Expected == nil && a.Decision.Headroom == nil {
		return ""
	}
	return "; " + words
}

// headroom is how much memory was free, and which larger micro batch or smaller card fits, for the end of a sentence.
func (p *People) headroom() string {
	if last := p.last(); last != nil && last.Decision.Headroom != nil && !p.Quiet {
		return "; " + last.Decision.Headroom.Words()
	}
	return ""
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
