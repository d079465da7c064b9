package report

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

	"github.com/gpurun/gpurun/launcher/ranklog"
	"github.com/gpurun/gpurun/model"
	"github.com/gpurun/gpurun/strategy"
)

// environment is what the run ran with and on.
func (d *Data) environment() []fact {
	b := d.Began
	var facts []fact
	add := func(name, value string) {
		if value != "" {
			facts = append(facts, fact{name, d.say.sentence(value)})
		}
	}
	add("gpurun", b.Version+commit(b.Version == d.Version))
	add("recipe", b.Recipe)
	add("interpreter", b.Python)
	add("place", b.Place)
	add("device", d.device())
	add("ranks", ranksOf(b.Job))
	if b.Job.Ceiling > 0 {
		add("ceiling", gib(b.Job.Ceiling)+" of device memory for each rank (limits.device_memory)")
	}
	add("policy", policyOf(b.Policy))
	add("job as written", b.Plan.String())
	if b.Job.Recalled != nil {
		add("recalled", b.Job.Recalled.String())
	}
	add("scheduler", b.Scheduler)
	if b.Restart > 0 {
		add("restarts by it", fmt.Sprint(b.Restart))
	}
	add("run directory", d.Dir)
	return facts
}

// commit names the commit that this gpurun was built from, where it is the one that ran and
// its version does not say so; empty where nobody knows.
func commit(same bool) string {
	info, known := debug.ReadBuildInfo()
	if !known || !same || strings.Contains(info.Main.Version, "-") {
		return ""
	}
	said := ""
	for _, s := range info.Settings {
		switch {
		case s.Key == "vcs.revision":
			said = ", commit " + s.Value[:min(12, len(s.Value))]
		case s.Key == "vcs.modified" && s.Value == "true" && said != "":
			said += " with changes"
		}
	}
	return said
}

// device is what the ranks trained on, as it was seen last.
func (d *Data) device() string {
	for i := len(d.Attempts) - 1; i >= 0; i-- {
		inv := d.Attempts[i].Inventory
		if inv.Accelerator == "" {
			continue
		}
		said := cmp.Or(inv.Device.Name, inv.Accelerator)
		if inv.Device.Total > 0 {
			said += " with " + gib(inv.Device.Total)
		}
		switch {
		case inv.HostTotal > 0:
			said += fmt.Sprintf("; %s of host memory, %s of it free then", gib(inv.HostTotal), gib(inv.HostAvailable))
		case inv.HostAvailable > 0:
			said += "; " + gib(inv.HostAvailable) + " of host memory free"
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

// policyOf says the policy in the words of train.toml.
func policyOf(p strategy.Policy) string {
	words := []string{
		"mode " + string(p.Mode), "prefer " + cmp.Or(string(p.Prefer), string(strategy.ExactFirst)), "numerics " + string(p.Numerics),
		fmt.Sprintf("at most %s", strategy.Count(p.MaxAttempts, "attempt")),
	}
	if len(p.Never) > 0 {
		words = append(words, "never "+strings.Join(p.Never, ", "))
	}
	if !p.Climb {
		words = append(words, "no climb")
	}
	return strings.Join(words, "; ")
}

// files are those of one folder, as links relative to the report.
type files struct {
	Folder string
	Names  []link
	Left   string
}

// A link leads to a file of the run; without an address it names it.
type link struct{ Name, Address string }

// files lists what is worth a look, as far as it is there.
func (d *Data) files(shown []int) []files {
	all := []files{d.folder("", []string{"journal.jsonl", "verdict.json"})}
	for _, i := range shown {
		a := &d.Attempts[i]
		name := fmt.Sprintf("attempt-%d", a.N)
		names := []string{"command.json", "plan.json", "diff.patch", model.SamplesFile}
		ranks := 0
		folders := ranklog.Folders(filepath.Join(d.Dir, name))
		for _, rank := range slices.Sorted(maps.Keys(folders))[:min(len(folders), mostRanks)] {
			out, err := filepath.Rel(filepath.Join(d.Dir, name), folders[rank])
			if err == nil {
				names = append(names, out+"/stdout.log", out+"/stderr.log")
				ranks++
			}
		}
		for _, f := range a.Evidence.Facts {
			if f.Snapshot != nil && len(names) < 4*mostRanks {
				names = append(names, f.Snapshot.File)
			}
		}
		folder := d.folder(name, names)
		if left := d.Began.Job.Ranks - ranks; left > 0 && ranks > 0 {
			folder.Left = fmt.Sprintf("and the output of %s more", strategy.Count(left, "rank"))
		}
		all = append(all, folder)
	}
	return all
}

// folder are the files of one folder that are there.
func (d *Data) folder(folder string, names []string) files {
	f := files{Folder: folder}
	for _, name := range names {
		if !filepath.IsLocal(name) || len(name) > shortText {
			continue
		}
		if info, err := os.Lstat(filepath.Join(d.Dir, folder, name)); err != nil || !info.Mode().IsRegular() {
			continue
		}
		l := link{Name: d.say.short(name)}
		if d.From != "" {
			l.Address = path.Join(filepath.ToSlash(d.From), folder, name)
		}
		f.Names = append(f.Names, l)
	}
	return f
}
