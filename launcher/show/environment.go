package show

import (
	"cmp"
	"fmt"
	"maps"
	"os"
	"path"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"

	"github.com/gpurun/gpurun/launcher/ranks"
	"github.com/gpurun/gpurun/strategy"
)

// Environment is what the run ran with, and where.
func (d *ReportData) Environment() []fact {
	b := d.Began
	var all factList
	all.add("gpurun", b.Version+commit(b.Version == d.Version))
	all.add("recipe", b.Recipe)
	all.add("interpreter", b.Python)
	all.add("place", b.Place)
	all.add("device", d.device())
	all.add("ranks", ranksOf(b.Job))
	if b.Job.Ceiling > 0 {
		all.add("ceiling", gibText(b.Job.Ceiling)+" of device memory for each rank (limits.device_memory)")
	}
	all.add("policy", policyOf(b.Policy))
	all.add("job as written", b.Plan.String())
	if b.Job.Recalled != nil {
		all.add("recalled", b.Job.Recalled.String())
	}
	all.add("scheduler", b.Scheduler)
	if b.Restart > 0 {
		all.add("restarts by it", fmt.Sprint(b.Restart))
	}
	all.add("run directory", d.Dir)
	return all
}

// commit names the commit that this gpurun was built from, where it is the version that ran
// and its version does not show the commit; empty where that is not known.
func commit(same bool) string {
	info, known := debug.ReadBuildInfo()
	if !known || !same || strings.Contains(info.Main.Version, "-") {
		return ""
	}
	commit := ""
	for _, s := range info.Settings {
		switch {
		case s.Key == "vcs.revision":
			commit = ", commit " + s.Value[:min(12, len(s.Value))]
		case s.Key == "vcs.modified" && s.Value == "true" && commit != "":
			commit += " with changes"
		}
	}
	return commit
}

// device is what the ranks trained on, as it was seen last.
func (d *ReportData) device() string {
	for i := len(d.Attempts) - 1; i >= 0; i-- {
		inv := d.Attempts[i].Inventory
		if inv.Accelerator == "" {
			continue
		}
		said := cmp.Or(inv.Device.Name, inv.Accelerator)
		if inv.Device.Total > 0 {
			said += " with " + gibText(inv.Device.Total)
		}
		switch {
		case inv.HostTotal > 0:
			said += fmt.Sprintf("; %s of host memory, %s of it free then", gibText(inv.HostTotal), gibText(inv.HostAvailable))
		case inv.HostAvailable > 0:
			said += "; " + gibText(inv.HostAvailable) + " of host memory free"
		}
		return said
	}
	return ""
}

func ranksOf(j strategy.Job) string {
	if j.Ranks == 0 {
		return ""
	}
	said := fmt.Sprint(j.Ranks)
	if j.LocalRanks > 0 && j.LocalRanks != j.Ranks {
		said += fmt.Sprintf(", %d on this node", j.LocalRanks)
	}
	if j.DataParallel > 0 && j.DataParallel != j.Ranks {
		said += fmt.Sprintf(", data parallel %d", j.DataParallel)
	}
	return said
}

// policyOf is the policy, with the keys of train.toml.
func policyOf(p strategy.Policy) string {
	words := []string{
		"mode " + string(p.Mode), "prefer " + cmp.Or(string(p.Prefer), string(strategy.ExactFirst)),
		"numerics " + string(p.Numerics),
		fmt.Sprintf("at most %s", strategy.Count(p.MaxAttempts, "attempt")),
	}
	if len(p.Never) > 0 {
		words = append(words, "never "+strings.Join(p.Never, ", "))
	}
	if !p.Speedup {
		words = append(words, "no speed-up")
	}
	return strings.Join(words, "; ")
}

// files are those of one folder, with links relative to the report.
type files struct {
	Folder string
	Names  []fileLink
	Left   string
}

// A fileLink leads to a file of the run; without an address it only names it.
type fileLink struct{ Name, Address string }

// Files lists the files of the run that are worth a look and exist.
func (d *reportPage) Files() []files {
	all := []files{d.folder("", []string{"journal.jsonl", "verdict.json"})}
	for _, i := range d.shown {
		a := &d.Attempts[i]
		name := fmt.Sprintf("attempt-%d", a.N)
		names := []string{"command.json", "plan.json", "diff.patch", strategy.SamplesFile}
		listed := 0
		folders := ranks.LogFolders(filepath.Join(d.Dir, name))
		for _, rank := range slices.Sorted(maps.Keys(folders))[:min(len(folders), mostRanks)] {
			out, err := filepath.Rel(filepath.Join(d.Dir, name), folders[rank])
			if err == nil {
				names = append(names, out+"/stdout.log", out+"/stderr.log")
				listed++
			}
		}
		for _, f := range a.Evidence.Facts {
			if strategy.As[*strategy.Snapshot](f) != nil && len(names) < 4*mostRanks {
				names = append(names, strategy.As[*strategy.Snapshot](f).File)
			}
		}
		folder := d.folder(name, names)
		if left := d.Began.Job.Ranks - listed; left > 0 && listed > 0 {
			folder.Left = fmt.Sprintf("and the output of %s more", strategy.Count(left, "rank"))
		}
		all = append(all, folder)
	}
	return all
}

// folder are the files of one folder that exist.
func (d *ReportData) folder(folder string, names []string) files {
	f := files{Folder: folder}
	for _, name := range names {
		if !filepath.IsLocal(name) || len(name) > shortText {
			continue
		}
		if info, err := os.Lstat(filepath.Join(d.Dir, folder, name)); err != nil || !info.Mode().IsRegular() {
			continue
		}
		l := fileLink{Name: name}
		if d.From != "" {
			l.Address = path.Join(filepath.ToSlash(d.From), folder, name)
		}
		f.Names = append(f.Names, l)
	}
	return f
}
