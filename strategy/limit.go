package strategy

import (
	"slices"
	"strconv"
	"strings"
)

// A Limit is a key of the policy that a site may lock: users may make it stricter, not looser.
type Limit struct {
	Key     string                 // as in a train.toml
	Tighter func(at Policy) string // the values that are allowed if it is locked at that of a policy
	// Tighten replaces p's value of the key by that of another policy, where that is stricter.
	Tighten func(p *Policy, by Policy)
}

// Limits are all keys of a policy of which one value is stricter than another.
var Limits = []Limit{
	{"recovery.max_attempts", always("a smaller number"),
		func(p *Policy, by Policy) { p.MaxAttempts = min(p.MaxAttempts, by.MaxAttempts) }},
	{"recovery.numerics", numericsUpTo, func(p *Policy, by Policy) {
		if at := slices.Index(numericsInOrder, by.Numerics); at >= 0 && at < slices.Index(numericsInOrder, p.Numerics) {
			p.Numerics = by.Numerics
		}
	}},
	{"recovery.restart_from_zero", always("a shorter time"),
		func(p *Policy, by Policy) { p.RestartFromZero = min(p.RestartFromZero, by.RestartFromZero) }},
	{"recovery.never", always("more names"), func(p *Policy, by Policy) {
		for _, name := range by.Never {
			if !slices.Contains(p.Never, name) {
				p.Never = append(slices.Clone(p.Never), name)
			}
		}
	}},
	{"recovery.in_place", always("false"), func(p *Policy, by Policy) { p.InPlace = p.InPlace && by.InPlace }},
	{"recovery.tune", always("false"), func(p *Policy, by Policy) { p.Tune = p.Tune && by.Tune }},
	{"recovery.questions", always("a shorter time"), func(p *Policy,
		by Policy) {
		p.Questions = min(p.Questions, by.Questions)
	}},
}

func always(words string) func(Policy) string { return func(Policy) string { return words } }

// numericsUpTo lists the numerics that are as strict as those of a policy.
func numericsUpTo(p Policy) string {
	var allowed []string
	for _, n := range numericsInOrder[:slices.Index(numericsInOrder, p.Numerics)+1] {
		allowed = append(allowed, strconv.Quote(string(n)))
	}
	return strings.Join(allowed, " or ")
}

// numericsInOrder are the strictest first.
var numericsInOrder = []Numerics{Preserve, MixedPrecision, Any}

// Strictest returns the policy with the stricter value of each key of Limits.
func (p Policy) Strictest(other Policy) Policy {
	for _, l := range Limits {
		l.Tighten(&p, other)
	}
	return p
}

// Forbids returns why the policy does not allow the job to run with a plan that an earlier policy allowed;
// empty if it does.
func (p Policy) Forbids(j Job, plan Plan) string {
	return forbidden(p, j, Inventory{}, j.Written.Changed(plan), neededOften)
}
