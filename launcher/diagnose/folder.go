package diagnose

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/gpurun/gpurun/launcher/ranks"
	"github.com/gpurun/gpurun/strategy"
	"github.com/gpurun/gpurun/strategy/cause"
)

// directory reads a directory, whose kind follows from its content.
func (c Collector) directory(dir string) (Artifacts, error) {
	r := Artifacts{Name: dir, Several: true}
	if run := runIn(dir); run != "" {
		return c.run(run)
	}
	at, err := c.attemptIn(dir)
	if err != nil {
		return r, err
	}
	if at == "" { // torchrun puts a folder for the rendezvous in between
		inner, err := filepath.Glob(filepath.Join(quotePattern(dir), "*", "attempt_*"))
		if err != nil || len(inner) == 0 {
			at = dir
		} else if at, err = c.attemptIn(filepath.Dir(newest(inner))); err != nil {
			return r, err
		}
		at = cmp.Or(at, dir) // the entry of that name is a file
	}
	r.Evidence, r.unread, err = c.attemptFolder(at)
	return r, err
}

// attemptIn finds the folder of the wanted attempt: attempt_<n> of torchrun, attempt-<n> of
// gpurun. It is empty where there is none.
func (c Collector) attemptIn(dir string) (string, error) {
	numbered := foldersOf(dir, "attempt_", "attempt-")
	if len(numbered) == 0 {
		return "", nil
	}
	if c.Attempt < 0 {
		return numbered[len(numbered)-1].path, nil
	}
	for _, n := range numbered {
		if n.number == c.Attempt {
			return n.path, nil
		}
	}
	return "", fmt.Errorf("%s has no attempt %d", dir, c.Attempt)
}

// A folder has a name that ends in a number.
type folder struct {
	number int
	path   string
}

// foldersOf lists the folders that are named by one of the prefixes and a number.
func foldersOf(dir string, prefixes ...string) []folder {
	var all []folder
	for _, p := range prefixes {
		for n, path := range ranks.NumberedFolders(dir, p) {
			all = append(all, folder{n, path})
		}
	}
	slices.SortStableFunc(all, func(a, b folder) int { return cmp.Compare(a.number, b.number) })
	return all
}

var errNothingThere = errors.New("holds no stdout.log, stderr.log or error.json of a rank")

// attemptFolder reads the folders of all ranks of one attempt, or the folder of
// one rank. unread are the errors of files that could not be read, if others could.
func (c Collector) attemptFolder(dir string) (ev strategy.Evidence, unread []error, err error) {
	folders, alone := ranksIn(dir)
	files := 0
	for _, f := range folders {
		facts, n, failed := c.rankFolder(f)
		unread = append(unread, failed...)
		files += n
		ev.Facts = append(ev.Facts, facts...)
	}
	switch {
	case files == 0 && len(unread) > 0:
		return ev, nil, errors.Join(unread...)
	case files == 0:
		return ev, nil, fmt.Errorf("%s %w", strings.TrimSuffix(dir, "/"), errNothingThere)
	}
	if !alone && len(unread) == 0 { // one folder does not show how many ranks there were
		ev.Ranks = len(folders)
	}
	ev.Facts = append(ev.Facts, c.exit()...)
	return ev, unread, nil
}

// ranksIn lists the folders of an attempt's ranks. alone: the folder itself is one. Numbers that
// do not begin with 0, as those of jobs, are no ranks.
func ranksIn(dir string) (folders []folder, alone bool) {
	folders = foldersOf(dir, "rank")
	if numbered := foldersOf(dir, ""); len(numbered) > 0 && numbered[0].number == 0 {
		folders = append(folders, numbered...)
	}
	for _, node := range foldersOf(dir, "node-") { // of other nodes than the first
		folders = append(folders, foldersOf(node.path, "rank")...)
	}
	if len(folders) == 0 {
		return []folder{{rankOf(dir), dir}}, true
	}
	return folders, false
}

// rankOf is the rank that a folder is of: rank<k>, or a number in the folder of
// an attempt, as torchrun names it; -1 for another.
func rankOf(dir string) int {
	absolute, err := filepath.Abs(dir)
	if err != nil {
		return -1
	}
	number, named := strings.CutPrefix(filepath.Base(absolute), "rank")
	n, err := strconv.Atoi(number)
	if err != nil || n < 0 || !named && !strings.HasPrefix(filepath.Base(filepath.Dir(absolute)), "attempt_") {
		return -1
	}
	return n
}

// rankFolder reads what one rank left, and counts the files. The exception has its time from
// error.json; the output shows none.
func (c Collector) rankFolder(f folder) (facts []strategy.Fact, files int, failed []error) {
	step := 0
	for _, name := range []string{"stdout.log", "stderr.log"} {
		if !isLeft(filepath.Join(f.path, name)) {
			continue
		}
		read, err := c.stream(f.number, strings.TrimSuffix(name, ".log"), filepath.Join(f.path, name))
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			failed = append(failed, fmt.Errorf("rank %d: %w", f.number, err))
			continue
		}
		files++
		step = max(step, read.step)
		facts = append(facts, read.facts...)
	}
	var text []byte
	if path := filepath.Join(f.path, "error.json"); isLeft(path) {
		var err error
		if text, err = os.ReadFile(path); err != nil && !errors.Is(err, os.ErrNotExist) {
			failed = append(failed, fmt.Errorf("rank %d: read its error file: %w", f.number, err))
		}
	}
	raised, at, ok := cause.ErrorFile(text)
	for _, fact := range facts {
		setStep(fact, step)
	}
	if !ok {
		return facts, files, failed
	}
	for i, fact := range facts {
		if fact.Finding() != nil && fact.Finding().Raised {
			facts[i].Time = at
		}
	}
	facts = append(facts, strategy.Fact{Time: at, Rank: f.number, Source: "error.json",
		Content: (*strategy.Finding)(&raised)}.WithText(shapes.Output))
	return facts, files + 1, failed
}

// setStep sets the last step before a finding from the rank's other stream: the steps are on
// stdout, the error on stderr.
func setStep(f strategy.Fact, step int) {
	if f.Finding() != nil && f.Finding().Step == 0 {
		f.Finding().Step = step
	}
}

// isLeft reports whether the rank left a file there: a link of the job would show another file,
// and a pipe never ends.
func isLeft(path string) bool {
	info, err := os.Lstat(path)
	return err != nil || info.Mode().IsRegular()
}
