package strategy

import (
	"slices"

	"github.com/gpurun/gpurun/strategy/cause"
)

// A Rule is the name of a rule by which a diagnosis was made.
type Rule string

// The rules that choose the cause, each with the kind of its evidence.
const (
	RuleMessage Rule = "message" // the first message that names a cause
	RuleError   Rule = "own-error"
	RuleSymptom Rule = "symptom"
	RuleWarning Rule = "warning"
	RuleExit    Rule = "exit"
	RuleCounter Rule = "counter"
	RuleDriver  Rule = "driver-event"
	RuleNothing Rule = "nothing"
	RuleCrash   Rule = "crash-without-memory"
)

// The rules that omit evidence, or put it in its place, before the cause is chosen.
const (
	RuleLastStart   Rule = "last-start"
	RuleOutlived    Rule = "outlived"
	RuleIgnored     Rule = "ignored-exception"
	RuleConsequence Rule = "consequence"
	RuleSignal      Rule = "signal"
	RuleRoot        Rule = "root"
	RuleUnrecovered Rule = "unrecovered"
)

// ruleWords explains the rules in a sentence each.
var ruleWords = map[Rule]string{
	RuleMessage:     "the first message that names a cause is the cause, unless another one explains it",
	RuleError:       "no message names a cause, and the job's own exception, or a crash, ended it",
	RuleSymptom:     "only a consequence of an end was seen, and what it follows from was not",
	RuleWarning:     "only a warning was seen",
	RuleExit:        "only the exit code is known",
	RuleCounter:     "the kernel counted a kill for lack of memory",
	RuleDriver:      "the driver reported an event of the GPU",
	RuleCrash:       "native code crashed in a process in which memory had run out before: under a limit, it does not check what it allocates",
	RuleNothing:     "nothing that ends a job was seen",
	RuleLastStart:   "the output holds several starts of the job, and the last one is diagnosed",
	RuleOutlived:    "the job made many steps after an error, so the error did not end it",
	RuleIgnored:     "an exception that Python ignores, while it removes an object, ends nothing",
	RuleConsequence: "what a scheduler or a driver reports after a task has ended is a consequence of that end",
	RuleSignal:      "a signal ended the job, and an exception that was being handled is its context",
	RuleUnrecovered: "the job reported that it handles an error, but an exception ended it at once, so the error ended it",
	RuleRoot:        "an error that only follows from another one gives way to it",
}

// Words explains the rule in one sentence, without a full stop.
func (r Rule) Words() string { return ruleWords[r] }

// rule is the rule by which a candidate was chosen.
func (c *fold) rule(best candidate) Rule {
	switch {
	case c.event(best):
		return RuleDriver
	case As[*Kills](c.facts[best.fact]) != nil:
		return RuleCounter
	case c.crashed(best):
		return RuleCrash
	}
	return map[tier]Rule{tierCause: RuleMessage, tierOwn: RuleError, tierSymptom: RuleSymptom, tierWarning: RuleWarning,
		tierExit: RuleExit}[best.tier]
}

// crashed reports whether a candidate is a crash for want of memory; see starved.
func (c *fold) crashed(a candidate) bool {
	return a.code == cause.HostOOM && (c.facts[a.fact].Exit() != nil || a.finding != nil &&
		a.finding.Code == cause.Segfault)
}

// Rule is the rule that chose the cause.
func (d Diagnosis) Rule() Rule {
	if len(d.Rules) == 0 {
		return RuleNothing
	}
	return d.Rules[len(d.Rules)-1]
}

// omissions are the rules by which findings count for less than their text says.
func (c *fold) omissions() (rules []Rule) {
	for _, s := range c.findings {
		f := s.finding
		switch {
		case f.Says(cause.SaysIgnored) && !slices.Contains(rules, RuleIgnored):
			rules = append(rules, RuleIgnored)
		case f.Weight == cause.WeightOutlived && !slices.Contains(rules, RuleOutlived):
			rules = append(rules, RuleOutlived)
		}
	}
	return rules
}

// overrules are the rules by which candidates gave way to the chosen one.
func overrules(all []candidate, best candidate) (rules []Rule) {
	for _, a := range all {
		f := a.finding
		switch {
		case f == nil || a.fact == best.fact:
		case a.tier == tierConsequence && !slices.Contains(rules, RuleConsequence):
			rules = append(rules, RuleConsequence)
		case (f.Says(cause.SaysOrchestrator) || best.code.LeavesNoGroup() && f.Says(cause.SaysNoGroup)) &&
			!slices.Contains(rules, RuleRoot):
			rules = append(rules, RuleRoot)
		}
	}
	if f := best.finding; f != nil && f.Weight.Dismissed() {
		rules = append(rules, RuleUnrecovered)
	}
	if f := best.finding; f != nil && best.code == cause.Preempted && f.Raised && !slices.Contains(rules, RuleSignal) {
		rules = append(rules, RuleSignal)
	}
	return rules
}
