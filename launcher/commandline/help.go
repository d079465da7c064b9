package commandline

import (
	"fmt"
	"slices"
	"strings"
)

// A HelpEntry is an option in the help of a verb, or a text between options.
type HelpEntry struct {
	Names []string // with their dashes; nil for a text
	Value string   // placeholder of the option's value; empty for none
	About string   // what the option does, or the text; a heading ends in a colon
}

// entry returns the option as help shows it.
func (o *Option) entry() HelpEntry {
	e := HelpEntry{Names: []string{"--" + o.Name}, Value: o.Value, About: o.About}
	switch {
	case o.Means == Help:
		e.Names = append(e.Names, "-"+string(o.Short))
	case o.Short != 0:
		e.Names = slices.Insert(e.Names, 0, "-"+string(o.Short))
	}
	return e
}

// entries returns the options that help lists.
func entries(options ...Option) (all []HelpEntry) {
	for i := range options {
		if options[i].About != "" {
			all = append(all, options[i].entry())
		}
	}
	return all
}

// oneDocument is the option --json of verbs that do not run a job.
var oneDocument = Option{Name: "json", Bare: true, About: "print one JSON document on stdout"}

// HelpFor returns the help for the options of a verb that reads its command line itself.
func HelpFor(verb string) []HelpEntry {
	text := func(about string) []HelpEntry { return []HelpEntry{{About: about}} }
	ofJob := torchrunOptions()
	switch verb {
	case "run":
		return slices.Concat(
			text("gpurun's own:"), entries(ownOptions...), entries(helpOption),
			text("the policy, over train.toml and the defaults in ~/.config/gpurun/config.toml:"), entries(policyOptions...),
			text("torchrun's, before the script (with a train.toml: its [launch] table, or job.command):"),
			entries(slices.DeleteFunc(ofJob, func(o Option) bool { return o.Means == Help })...),
			text("--standalone and torchrun's other flags for rendezvous and monitoring are accepted and have no effect."))
	case "estimate":
		return slices.Concat(entries(oneDocument), entries(estimateOptions...), entries(helpOption),
			text("With a job, the flags override the job's settings; those of \"gpurun plan\" count before it, too."))
	}
	ofJob = slices.DeleteFunc(slices.Concat(ofJob, ownOptions), func(o Option) bool {
		return !slices.Contains([]string{"nproc-per-node", "module", "no-python", "python"}, o.Name)
	})
	return slices.Concat(entries(oneDocument), entries(ofJob...), entries(helpOption),
		text("Those of the policy (--mode, --numerics, --never, --device-memory) count as in \"gpurun run\", whose other flags\n"+
			"are accepted, and change nothing here."))
}

// HelpText returns HelpFor as lines.
func HelpText(verb string) string {
	all := HelpFor(verb)
	indent, width := 0, 20
	if all[0].Names == nil { // under headings
		indent, width = 2, 24
	}
	var b strings.Builder
	for i, e := range all {
		switch {
		case e.Names != nil:
			about := strings.ReplaceAll(e.About, "\n", "\n"+strings.Repeat(" ", indent+width))
			fmt.Fprintf(&b, "%*s%-*s%s\n", indent, "", width, strings.TrimSpace(strings.Join(e.Names, ", ")+" "+e.Value), about)
		case strings.HasSuffix(e.About, ":") && i > 0:
			fmt.Fprintf(&b, "\n%s\n", e.About)
		case strings.HasSuffix(e.About, ":"):
			fmt.Fprintf(&b, "%s\n", e.About)
		default:
			fmt.Fprintf(&b, "%*s%s\n", indent, "", e.About)
		}
	}
	return strings.TrimSuffix(b.String(), "\n")
}

// Completable returns the options of such a verb that a shell can complete: those in its help, and those that
// only its reader knows.
func Completable(verb string) []HelpEntry {
	all := slices.DeleteFunc(HelpFor(verb), func(e HelpEntry) bool { return e.Names == nil })
	more := runOptions
	if verb == "estimate" {
		more = estimateOptions
	}
	for i := range more {
		e := more[i].entry()
		if e.Value == "" && !more[i].Bare {
			e.Value = "VALUE"
		}
		if !slices.ContainsFunc(all, func(listed HelpEntry) bool { return slices.Contains(listed.Names, e.Names[0]) }) {
			all = append(all, e)
		}
	}
	return all
}
