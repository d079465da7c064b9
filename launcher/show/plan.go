package show

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/gpurun/gpurun/launcher/mask"
	"github.com/gpurun/gpurun/strategy"
)

// A Survey is the output of gpurun plan, in JSON and as a page.
type Survey struct {
	Job      string           `json:"job"`
	Recipe   string           `json:"recipe"`
	Python   string           `json:"python"` // empty for a program
	Ranks    int              `json:"ranks"`
	Plain    bool             `json:"plain"` // one process that is given no rank
	Why      string           `json:"ranks_reason"`
	Ceiling  *int64           `json:"ceiling_bytes"` // of each rank; null for none
	Plan     strategy.Plan    `json:"plan"`
	Remedies []strategy.Offer `json:"rungs"`
	// Likely are the settings that may be knobs, by their names.
	Likely map[strategy.Knob][]strategy.Likely `json:"likely,omitempty"`
	// Recalled is the plan that the next run starts with; nil: the job as written.
	Recalled *strategy.Recalled `json:"recalled,omitempty"`
	// Candidates are the plans that could come first or next, the preferred one first; empty before the job
	// has been measured.
	Candidates []strategy.Candidate `json:"candidates,omitempty"`

	// Reported are the values with which the job's processes ran, after a start; nil: nothing was started.
	Reported strategy.Plan `json:"reported,omitempty"`
	// Confirmed are the likely settings whose values the processes use.
	Confirmed strategy.Arguments `json:"confirmed,omitempty"`

	// Settings are what configuration files have set or locked for all jobs.
	Settings []strategy.Setting `json:"settings,omitempty"`

	// Only for the page: a description of the job's ranks, its place, the evidence for the recipe, warnings,
	// what happens on a restart, what is remembered and not used, and each knob's value, or why it has none.
	Launches   string                     `json:"-"`
	OwnRanks   bool                       `json:"-"` // the process may start more ranks: their number is not known
	Place      string                     `json:"-"`
	Evidence   []string                   `json:"-"`
	Warnings   []string                   `json:"-"`
	Remembered []string                   `json:"-"`
	Resumes    string                     `json:"-"`
	Value      func(strategy.Knob) string `json:"-"`
}

// Started takes in what the processes of a start reported.
func (v *Survey) Started(history []strategy.Attempt, p strategy.Policy, j strategy.Job, inv strategy.Inventory) {
	if len(history) == 0 {
		return
	}
	a := history[len(history)-1]
	v.Reported, v.Confirmed, v.Remedies = j.Reported(history), j.Confirmed(history), strategy.SurveyAfter(p, j, a, inv)
	if a.World > 0 {
		v.Ranks, v.OwnRanks, v.Why = a.World, false, "as torch.distributed has them"
	}
	before := v.Value
	v.Value = func(k strategy.Knob) string {
		value, by := v.Reported[k], v.Confirmed[k]
		switch {
		case value == "":
			return before(k)
		case by.Times > 1:
			return fmt.Sprintf("%s in the process, by %s for %d ranks together", value, by.Name, by.Times)
		case by.Name != "":
			return fmt.Sprintf("%s in the process, by %s", value, by.Name)
		}
		return string(value) + " in the process"
	}
}

// LimitBytes is a limit in bytes; nil for none.
func LimitBytes(bytes int64) *int64 {
	if bytes <= 0 {
		return nil
	}
	return &bytes
}

// Write prints the survey, for people or as JSON.
func (v Survey) Write(out io.Writer, m *mask.Masker, asJSON bool) error {
	if asJSON {
		return WriteJSON(out, m, v)
	}
	return v.Show(out, m)
}

// Show prints the survey for people.
func (v Survey) Show(out io.Writer, m *mask.Masker) error {
	page := NewPage(out, m)
	page.Printf("job %s: %s, recipe %s, %s\n", v.Job, v.Launches, v.Recipe, v.Place)
	ranks := strconv.Itoa(v.Ranks)
	if v.OwnRanks {
		ranks = "not known"
	}
	page.Printf("  ranks: %s: %s\n", ranks, v.Why)
	for _, line := range v.Evidence {
		page.Printf("  recognised by: %s\n", line)
	}
	if v.Python != "" {
		page.Printf("  interpreter: %s\n", v.Python)
	}
	if v.Ceiling != nil {
		page.Printf("  device memory of each rank: at most %s (limits.device_memory)\n", strategy.GiB(*v.Ceiling))
	}
	for _, text := range v.Warnings {
		page.Printf("warning: %s\n", text)
	}
	for _, s := range v.Settings {
		page.Printf("  %s\n", s)
	}
	page.Printf("  %s\n", v.Resumes)
	if v.Recalled != nil {
		page.Printf("  the next run: %s\n", v.Recalled)
	}
	for _, text := range v.Remembered {
		page.Printf("  %s\n", text)
	}
	for _, part := range []func(*Page, io.Writer) error{v.knobs, v.remedies, v.candidates} {
		if err := part(page, out); err != nil {
			return fmt.Errorf("print the plan: %w", err)
		}
	}
	if v.Reported == nil {
		page.Printf("\nnothing was started: gpurun plan --start … asks the job's process\n")
	}
	return nil
}

func (v Survey) knobs(page *Page, out io.Writer) error {
	page.Printf("\nplan:\n")
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	rows, said := page.On(table), false
	var texts []string
	unknown := map[string][]string{} // by the reason why there is no value
	for _, k := range strategy.Knobs {
		value := v.Value(k)
		said = said || value != ""
		switch {
		case value == "":
		case v.Plan[k] != "" || v.Reported[k] != "" || len(v.Likely[k]) > 0:
			rows.Printf("  %s\t%s\n", k, value)
		default:
			if unknown[value] == nil {
				texts = append(texts, value)
			}
			unknown[value] = append(unknown[value], string(k))
		}
	}
	switch {
	case said:
	case v.Recipe != "none":
		page.Printf("  the value of no setting is known\n")
	default:
		page.Printf("  gpurun does not know this job: no recipe matches, and there is no [knobs] table (gpurun recipes lists the frameworks)\n")
	}
	if err := table.Flush(); err != nil {
		return err
	}
	for _, text := range texts {
		page.Printf("  %s: %s\n", strings.Join(unknown[text], ", "), text)
	}
	return nil
}

// remedies lists the remedies that can be taken in their order, then the others, a line for each reason.
func (v Survey) remedies(page *Page, out io.Writer) error {
	page.Printf("\nremedies:\n")
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	rows := page.On(table)
	var reasons []string
	barred := map[string][]string{} // by reason
	var inside []string             // what the hook can change, if the process allows it
	for _, o := range v.Remedies {
		if o.Available && o.By == string(strategy.ByHook) {
			inside = append(inside, string(o.Remedy))
			continue
		}
		if !o.Available {
			if barred[o.Reason] == nil {
				reasons = append(reasons, o.Reason)
			}
			barred[o.Reason] = append(barred[o.Reason], string(o.Remedy))
			continue
		}
		text := cmp.Or(v.known(o.Changed).String(), "changes nothing in the job")
		if o.Reason != "" && len(o.Changed) > 0 {
			text += "; " + o.Training.Words(o.Reason)
		}
		rows.Printf("  ✓ %s\t%s\n", o.Remedy, text)
	}
	if err := table.Flush(); err != nil {
		return err
	}
	if len(inside) > 0 {
		page.Printf("  ✓ if the process allows it: %s\n", strings.Join(inside, ", "))
	}
	for _, reason := range reasons {
		page.Printf("  – %s: %s\n", strings.Join(barred[reason], ", "), reason)
	}
	return nil
}

// known leaves out the present values of knobs that the job's own code may have set: only its process knows them.
func (v Survey) known(changed strategy.Changes) strategy.Changes {
	shown := maps.Clone(changed)
	for _, k := range []strategy.Knob{strategy.ActivationCheckpointing, strategy.Precision, strategy.Attention} {
		if pair, there := shown[k]; there && v.Plan[k] == "" {
			shown[k] = [2]strategy.Value{"", pair[1]}
		}
	}
	return shown
}

// measured is a measured peak in bytes, for people; empty if it is not known.
func measured(peak int64) string {
	if peak <= 0 {
		return ""
	}
	return strategy.GiB(peak) + " measured"
}

// candidatesShown is how many plans the page shows; the JSON has all of them.
const candidatesShown = 12

func (v Survey) candidates(page *Page, out io.Writer) error {
	if len(v.Candidates) == 0 {
		return nil
	}
	page.Printf("\ncandidates, by earlier measurements:\n")
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	rows := page.On(table)
	rows.Printf("  predicted peak\ts a step\tplan\tverdict\n")
	if r := v.Recalled; r != nil && !slices.ContainsFunc(v.Candidates,
		func(c strategy.Candidate) bool { return len(c.Plan.Changed(r.Plan)) == 0 }) {
		rows.Printf("  %s\t–\t%s\tfitted; the next run starts with it\n", cmp.Or(measured(r.Peak), "–"), r.Changed)
	}
	for _, c := range v.Candidates[:min(len(v.Candidates), candidatesShown)] {
		plan, seconds := v.Plan.Changed(c.Plan).String(), "–"
		if plan == "" {
			plan = "as written"
		}
		if c.Seconds > 0 && c.Timed {
			seconds = fmt.Sprintf("about %.2g", c.Seconds)
		}
		rows.Printf("  %s\t%s\t%s\t%s\n", strategy.Interval(c.Peak[0], c.Peak[1]), seconds, plan, c.Reason)
	}
	if err := table.Flush(); err != nil {
		return err
	}
	if more := len(v.Candidates) - candidatesShown; more > 0 {
		page.Printf("  and %d more: gpurun plan --json has all\n", more)
	}
	return nil
}
