package report

import (
	"fmt"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"

	"github.com/gpurun/gpurun/launcher/ranklog"
	"github.com/gpurun/gpurun/model"
)

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
			folder.Left = fmt.Sprintf("and the output of %s more", count(left, "rank"))
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
