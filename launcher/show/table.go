package show

import (
	"cmp"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/gpurun/gpurun/launcher/mask"
	"github.com/gpurun/gpurun/strategy"
)

// WriteTable prints the runs, a line each. The errors of broken runs follow below them.
func WriteTable(w io.Writer, all []Entry, now time.Time) error {
	var secrets *mask.Masker // the jobs' own secrets are not known here
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "JOB\tRUN\tAGE\tOUTCOME\tATTEMPTS\tPLAN\tSIZE\tHOST")
	names := jobNames(all)
	for i, r := range all {
		age, plan := "-", r.Plan
		if !r.Began.IsZero() {
			age = Age(now.Sub(r.Began))
		}
		switch {
		case r.Broken != "":
		case r.InPlace > 0 || r.Armed:
			plan = strings.TrimPrefix(plan+", in place", ", ")
		case plan == "":
			plan = "unchanged"
		}
		fmt.Fprint(table, secrets.Sprintf("%s\t%s\t%s\t%s\t%d\t%s\t%s\t%s\n", names[i], r.Name, age, r.State(), r.Attempts,
			cmp.Or(plan, "-"), r.size(), cmp.Or(r.Host, "-")))
	}
	if err := table.Flush(); err != nil {
		return err
	}
	for _, r := range all {
		if r.Broken == "" {
			continue
		}
		if _, err := io.WriteString(w, secrets.Sprintf("%s/%s is broken: %s\n", r.folder(), r.Name, r.Broken)); err != nil {
			return err
		}
	}
	_, err := io.WriteString(w, "gpurun status RUN shows the state of one, and what to do next\n")
	return err
}

// jobNames are the jobs' names, with the working directory where the runs are of several, and
// else with the script's folder where jobs of one name have scripts in several.
func jobNames(all []Entry) []string {
	if names := placedNames(all); names != nil {
		return names
	}
	folders := map[string]map[string]bool{}
	for _, r := range all {
		if folders[r.Job] == nil {
			folders[r.Job] = map[string]bool{}
		}
		if r.Script != "" {
			folders[r.Job][filepath.Dir(r.Script)] = true
		}
	}
	names := make([]string, len(all))
	for i, r := range all {
		if names[i] = r.Job; len(folders[r.Job]) > 1 && r.Script != "" {
			names[i] += " (" + filepath.Dir(r.Script) + ")"
		}
	}
	return names
}

// placedNames are the jobs' names with their working directories; nil where there is one.
func placedNames(all []Entry) []string {
	here, _ := os.Getwd()
	names, homes := make([]string, len(all)), map[string]bool{}
	for i, r := range all {
		dir := filepath.Dir(filepath.Dir(filepath.Dir(r.Path)))
		homes[dir] = true
		if near, err := filepath.Rel(here, dir); err == nil && filepath.IsLocal(near) {
			dir = near
		}
		names[i] = r.Job + " (" + dir + ")"
	}
	if len(homes) < 2 {
		return nil
	}
	return names
}

// Age is a duration in its largest unit: "12d", "3h", "4m", "20s".
func Age(d time.Duration) string {
	d = max(d, 0)
	switch {
	case d >= 48*time.Hour:
		return fmt.Sprintf("%dd", d/(24*time.Hour))
	case d >= 2*time.Hour:
		return fmt.Sprintf("%dh", d/time.Hour)
	case d >= 2*time.Minute:
		return fmt.Sprintf("%dm", d/time.Minute)
	}
	return fmt.Sprintf("%ds", d/time.Second)
}

// size is the disk space of the run: "1.2 GiB", or ">1.2 GiB" where that is not all.
func (r Entry) size() string {
	text := strategy.GiB(r.Bytes)
	if r.AtLeast {
		text = ">" + text
	}
	return text
}
