package runs

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"text/tabwriter"
	"time"

	"github.com/gpurun/gpurun/launcher/mask"
	"github.com/gpurun/gpurun/strategy"
)

// WriteTable writes the runs for people, a line each, as they stand at now. What is wrong
// with a broken run follows below them.
func WriteTable(w io.Writer, all []Run, now time.Time) error {
	var secrets *mask.Masker // nobody knows a job's own secrets here
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "JOB\tRUN\tAGE\tOUTCOME\tATTEMPTS\tPLAN\tSIZE\tHOST")
	names := jobNames(all)
	for i, r := range all {
		plan := r.Plan
		if plan == "" && r.Broken == "" {
			plan = "unchanged"
		}
		fmt.Fprint(table, secrets.Sprintf("%s\t%s\t%s\t%s\t%d\t%s\t%s\t%s\n", names[i], r.Name, r.age(now), r.Outcome, r.Attempts, dash(plan), r.size(), dash(r.Host)))
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
	_, err := io.WriteString(w, "gpurun status RUN says how one stands or ended, and what to do next\n")
	return err
}

// jobNames are what people call the runs' jobs: their names, with the working directory
// where the runs are of several, and else with the script's folder where jobs of one name
// have scripts in several.
func jobNames(all []Run) []string {
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
func placedNames(all []Run) []string {
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

func dash(text string) string {
	if text == "" {
		return "-"
	}
	return text
}

// age is how long ago the run began: "4m", "3h", "12d".
func (r Run) age(now time.Time) string {
	if r.Began.IsZero() {
		return "-"
	}
	return Age(now.Sub(r.Began))
}

// Age is a time that has passed, in its largest unit: "12d", "3h", "4m", "20s".
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

// size is what the run takes of the disk: "1.2 GiB", ">1.2 GiB" where that was not all.
func (r Run) size() string {
	text := strategy.GiB(r.Bytes)
	if r.AtLeast {
		text = ">" + text
	}
	return text
}
