package show

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/gpurun/gpurun/launcher/errext"
	"github.com/gpurun/gpurun/launcher/journal"
)

// NewestRun returns the run below dir that began or was resumed last. An error has a hint.
func NewestRun(dir string) (Entry, error) {
	all, err := ListRuns(dir)
	if err != nil {
		return Entry{}, err
	}
	if len(all) == 0 {
		return Entry{}, errext.Errorf(
			"name a run's folder, such as .gpurun/job/run, or go to the directory where the job was started",
			"there are no runs in %s", shown(dir))
	}
	return all[0], nil
}

// shown is a folder for messages: its absolute path, if possible.
func shown(dir string) string {
	if path, err := filepath.Abs(dir); err == nil {
		return path
	}
	return dir
}

// FindRun returns the run of a name. The name may be the path of a run directory, or of a folder above it;
// job/run or a run's name, or a unique prefix of one; or a job's name. For a folder or job with several runs,
// it is the newest one; without a name, the newest below dir. An error has a hint.
func FindRun(dir, name string) (Entry, error) {
	if name == "" {
		return NewestRun(dir)
	}
	if filepath.Base(name) == journal.File {
		name = filepath.Dir(name)
	}
	all, err := ListRuns(dir)
	if err == nil {
		if found := named(all, name); len(found) == 1 {
			return found[0], nil
		} else if len(found) > 1 {
			return Entry{}, ambiguous(name, found)
		}
	}
	path := name
	if !filepath.IsAbs(path) {
		path = filepath.Join(dir, name)
	}
	if journal.IsNode(path) {
		path = filepath.Dir(path)
	}
	info, err := os.Stat(path)
	switch {
	case err == nil && !info.IsDir():
		return Entry{}, errext.Errorf("a run directory is a folder, such as .gpurun/job/run",
			"%s is not a run directory of gpurun", name)
	case err == nil && isRun(path):
		path, err := filepath.Abs(path)
		return LookAtRun(path), err
	case err == nil:
		if below, err := NewestRun(path); err == nil {
			return below, nil
		}
		return Entry{}, errext.Errorf("a run directory has a journal.jsonl, such as .gpurun/job/run",
			"%s is not a run directory of gpurun", name)
	}
	return Entry{}, errext.Errorf("gpurun runs lists the runs; a run directory has a journal.jsonl",
		"%s is not a run directory of gpurun, nor the name of a run in %s", name, dir)
}

// named returns the runs that match a name: exactly, else a job's newest, else by prefix.
func named(all []Entry, name string) []Entry {
	name = strings.TrimSuffix(name, "/")
	exact := func(r Entry) bool { return name == r.Name || name == r.folder()+"/"+r.Name }
	of := func(r Entry) bool { return name == r.folder() || name == r.Job }
	begins := func(r Entry) bool {
		return strings.HasPrefix(r.Name, name) || strings.HasPrefix(r.folder()+"/"+r.Name, name) &&
			strings.Contains(name, "/")
	}
	for i, means := range []func(Entry) bool{exact, of, begins} {
		found := slices.DeleteFunc(slices.Clone(all), func(r Entry) bool { return !means(r) })
		if i == 1 && len(found) > 0 {
			return found[:1]
		}
		if len(found) > 0 {
			return found
		}
	}
	return nil
}

// folder is the name of the folder of the run's job.
func (r Entry) folder() string { return filepath.Base(filepath.Dir(r.Path)) }

// shownCandidates is how many runs the error for an ambiguous name lists.
const shownCandidates = 5

func ambiguous(name string, found []Entry) error {
	var words []string
	for _, r := range found[:min(len(found), shownCandidates)] {
		words = append(words, r.folder()+"/"+r.Name)
	}
	if more := len(found) - len(words); more > 0 {
		words = append(words, fmt.Sprintf("and %d more", more))
	}
	return errext.Errorf("name one of them: "+strings.Join(words, ", "), "%q may mean %d runs", name, len(found))
}
