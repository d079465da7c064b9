package show

import (
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/gpurun/gpurun/launcher"
	"github.com/gpurun/gpurun/launcher/commandline"
	"github.com/gpurun/gpurun/launcher/journal"
	"github.com/gpurun/gpurun/launcher/mask"
	"github.com/gpurun/gpurun/strategy"
)

// The end of a run that did not train fits into the last twenty lines of a log, the first of which is rootCause, in
// so many columns.
const screenRows, screenColumns = 19, 100

// firstTried and lastTried are how many of the attempts are listed, from each end.
const firstTried, lastTried = 2, 3

// ending prints what happened, what was tried, and what the user can do: one screen.
func (p *People) ending(v launcher.Verdict) {
	head := func(short bool) []string {
		lines := append([]string{p.prefixed("summary: %s%s", p.tally(v), p.used(v))}, p.tried(short)...)
		if last := p.last(); last != nil {
			if words := filled(last.Diagnosis, &last.Evidence).Brief(); words != "" {
				lines = append(lines, p.prefixed("  %s", words))
			}
		}
		return append(lines, p.prefixed("error: %s", v.Reason))
	}
	foot := []string{p.prefixed("%s", p.places())}
	if n := len(v.Attempts); n > 0 && v.Outcome == strategy.Exhausted && len(v.Attempts[n-1].Skipped) > 0 {
		foot[0] = p.prefixed("gpurun explain %s shows the remedies that were not taken, and why; %s",
			commandline.PastePath(p.Dir), p.places())
	}
	next := p.next(v, screenRows-rows(head(true), foot))
	for _, part := range [][]string{head(rows(head(false), next, foot) > screenRows), next, foot} {
		for _, line := range part {
			fmt.Fprintln(p.W, line)
		}
	}
}

// stepsShown is how many of the next steps the console has; explain and the report have all.
const stepsShown = 2

// next lists what the user can do, with the diffs that fit into a number of rows.
func (p *People) next(v launcher.Verdict, room int) (lines []string) {
	if v.Next == nil {
		return p.unwritten(v)
	}
	steps := make([][]string, min(len(v.Next), stepsShown))
	for i, step := range v.Next {
		if p.hints = append(p.hints, p.line("%s", stepWords(step))); i >= stepsShown {
			continue
		}
		if steps[i] = []string{p.prefixed("next: %d. %s", i+1, step.Reason)}; step.Command != "" {
			steps[i] = append(steps[i], p.line("    %s", step.Command))
		}
		room -= rows(steps[i])
	}
	for i, step := range v.Next[:len(steps)] {
		if diff := p.diffLines(step.Diff); rows(diff) <= room {
			steps[i], room = append(steps[i], diff...), room-rows(diff)
		}
	}
	return slices.Concat(steps...)
}

// unwritten has the hints of a run whose gpurun wrote no next steps: it was killed, or of an earlier version.
func (p *People) unwritten(v launcher.Verdict) (lines []string) {
	var hints []string
	if last := p.last(); last != nil && v.Outcome != strategy.Stopped {
		hints = append(hints, launcher.Advice(last.Diagnosis, last.Evidence, p.state.Began.Job.Ceiling))
	}
	if !v.Outcome.Final() {
		hints = append(hints, launcher.ContinueHint(p.state.Began.Scheduler, p.Dir))
	}
	for _, hint := range slices.DeleteFunc(hints, func(hint string) bool { return hint == "" }) {
		p.hints = append(p.hints, p.line("%s", hint))
		lines = append(lines, p.prefixed("hint: %s", hint))
	}
	return lines
}

func (p *People) prefixed(format string, args ...any) string {
	return "gpurun: " + p.line(format, args...)
}

// Next prints what the user can do after a run.
func (p *Page) Next(steps []strategy.Advice) {
	for i, step := range steps {
		if p.Printf("next: %d. %s\n", i+1, step.Reason); step.Command != "" {
			p.Printf("    %s\n", step.Command)
		}
		for line := range strings.Lines(step.Diff) {
			p.Printf("      %s\n", strings.TrimSuffix(line, "\n"))
		}
	}
}

// stepWords is a step in one line.
func stepWords(step strategy.Advice) string {
	if step.Command == "" {
		return step.Reason
	}
	return step.Reason + ": " + step.Command
}

// tried has a line for each attempt but the last, about which the verdict has a sentence; short: at most a row of the
// screen, and without those in the middle if there are many.
func (p *People) tried(short bool) (lines []string) {
	over, omitted := p.listed()
	if n := len(over); n > 0 && over[n-1].Phase == journal.Decided && !over[n-1].Decision.Relaunch {
		over = over[:n-1]
	}
	for i := range over {
		a := &over[i]
		words := p.prefixed("  attempt %d%s: %s", a.N, p.course(a), outcome(a))
		switch left := len(over) + omitted - firstTried - lastTried; {
		case !short && i == journal.First && omitted > 0:
			lines = append(lines, p.prefixed("%s", p.more(omitted)), words)
		case !short:
			lines = append(lines, words)
		case left > 1 && i == firstTried:
			lines = append(lines, p.prefixed("%s", p.more(left)))
		case left <= 1 || i < firstTried || i >= len(over)-lastTried:
			lines = append(lines, mask.CutText(words, screenColumns-1))
		}
	}
	return lines
}

// changesShown bounds the lines of a diff on the console.
const changesShown = 6

// fileChanges returns the changed lines of the configuration files in a diff, and the files' names. The command and the
// variables are in the attempt's line.
func (p *People) fileChanges(diff string) (lines []string) {
	all, inFile := strings.Split(strings.TrimSuffix(p.Mask.Config(diff), "\n"), "\n"), false
	for i, line := range all {
		name, header := strings.CutPrefix(line, "--- ")
		switch header = header && i+1 < len(all) && strings.HasPrefix(all[i+1], "+++ "); {
		case header:
			inFile = !slices.Contains([]string{"command", "environment", "calls in the process"}, name)
		case i > 0 && strings.HasPrefix(line, "+++ ") && strings.HasPrefix(all[i-1], "--- "):
			continue
		case !strings.HasPrefix(line, "-") && !strings.HasPrefix(line, "+"):
			continue
		}
		if !inFile {
			continue
		}
		if len(lines) == changesShown {
			return append(lines, "      …")
		}
		lines = append(lines, p.line("      %s", line))
	}
	return lines
}

func (p *People) diffLines(diff string) (lines []string) {
	if diff == "" {
		return nil
	}
	for line := range strings.SplitSeq(strings.TrimSuffix(diff, "\n"), "\n") {
		lines = append(lines, p.line("      %s", line))
	}
	return lines
}

// rows counts the rows of a terminal that lines take.
func rows(parts ...[]string) (n int) {
	for _, lines := range parts {
		for _, line := range lines {
			n += max(1, (utf8.RuneCountInString(line)+screenColumns-1)/screenColumns)
		}
	}
	return n
}
