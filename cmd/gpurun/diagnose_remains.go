package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gpurun/gpurun/launcher"
	"github.com/gpurun/gpurun/launcher/journal"
	"github.com/gpurun/gpurun/strategy"
	"github.com/gpurun/gpurun/strategy/cause"
)

// remains are what one run left behind, as evidence.
type remains struct {
	name     string
	evidence strategy.Evidence
	several  bool // ranks or streams, whose lines are numbered each for itself
	empty    bool // nothing was in it
}

// given is the source of facts that the command line told.
const given = "command line"

// A collector makes evidence of files and directories.
type collector struct {
	stdin    io.Reader
	attempt  int // -1: the last one
	exitCode *int
}

// collect reads a file, standard input, or a directory that a launcher left.
func (c collector) collect(name string) (remains, error) {
	if info, err := os.Stat(name); name != "-" && err == nil && info.IsDir() {
		return c.directory(name)
	}
	if name != "-" && filepath.Base(name) == journal.File {
		return c.run(filepath.Dir(name))
	}
	r := remains{name: name}
	found, err := c.stream(-1, "stdout", name)
	if err != nil {
		return r, err
	}
	r.empty = found.bytes == 0 && c.exitCode == nil
	r.evidence.Facts = append(found.facts, c.told()...)
	return r, nil
}

// told is the exit code of the command line: 128+n or -n for signal n.
func (c collector) told() []strategy.Fact {
	if c.exitCode == nil {
		return nil
	}
	facts := strategy.EvidenceFromLog(nil, c.exitCode).Facts
	for i := range facts {
		facts[i].Source = given
	}
	return facts
}

// ranks reads K=FILE words as one run.
func (c collector) ranks(words []string) (remains, error) {
	r := remains{several: true}
	var names []string
	seen := map[int]bool{}
	for _, word := range words {
		number, name, ok := strings.Cut(word, "=")
		rank, err := strconv.Atoi(number)
		if !ok || err != nil || rank < 0 {
			return r, fmt.Errorf("--rank %s is not K=FILE", word)
		}
		found, err := c.stream(rank, filepath.Base(name), name)
		if err != nil {
			return r, err
		}
		r.evidence.Facts = append(r.evidence.Facts, found.facts...)
		seen[rank] = true // a rank may have a file for each stream
		names = append(names, name)
	}
	r.name = strings.Join(names, ",")
	r.evidence.Ranks = len(seen)
	r.evidence.Facts = append(r.evidence.Facts, c.told()...)
	return r, nil
}

// A streamRead is what one stream showed.
type streamRead struct {
	facts []strategy.Fact
	step  int   // the last one
	bytes int64 // that it had
}

// stream reads one file to its end, in constant memory. A finding without a
// rank of its own is the given one's. The error is a *notText where the file
// cannot be a job's output.
func (c collector) stream(rank int, source, name string) (streamRead, error) {
	in := c.stdin
	if name != "-" {
		f, err := os.Open(name)
		if err != nil {
			return streamRead{}, fmt.Errorf("read the job's output: %w", err)
		}
		defer f.Close()
		in = f
	}
	in, err := asText(name, in)
	if err != nil {
		return streamRead{}, err
	}
	var read streamRead
	var evidence strategy.Evidence
	scanner := cause.NewScanner(source)
	scanner.OnFinding = func(s cause.Finding) {
		of := rank
		if of < 0 {
			of = s.Rank
		}
		evidence.Add(strategy.Fact{Rank: of, Source: source, Finding: &s})
	}
	if read.bytes, err = io.Copy(scanner, in); err != nil {
		return read, fmt.Errorf("read the job's output %s: %w", name, err)
	}
	scanner.Close()
	read.facts = evidence.Facts
	if g := scanner.Growth(); g != nil {
		read.facts = append(read.facts, strategy.Fact{Rank: rank, Source: source, Growth: g})
	}
	read.step = scanner.LastStep()
	return read, nil
}

// directory tells what a directory is by what lies in it.
func (c collector) directory(dir string) (remains, error) {
	r := remains{name: dir, several: true}
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
	}
	r.evidence, err = c.attemptFolder(at)
	return r, err
}

// runIn is the run of gpurun that a directory is or, of those below it (a job's,
// or those of all jobs), the newest; empty where there is none.
func runIn(dir string) string {
	if _, err := os.Stat(filepath.Join(dir, journal.File)); err == nil {
		return dir
	}
	var found []string
	for _, below := range []string{"*", filepath.Join("*", "*")} {
		journals, _ := filepath.Glob(filepath.Join(quotePattern(dir), below, journal.File)) // the pattern is whole
		found = append(found, journals...)
	}
	if len(found) == 0 {
		return ""
	}
	return filepath.Dir(newest(found))
}

// quotePattern is a path as filepath.Glob takes it literally.
func quotePattern(path string) string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`).Replace(path)
}

// newest is the path that was changed last.
func newest(paths []string) string {
	return slices.MaxFunc(paths, func(a, b string) int { return changed(a).Compare(changed(b)) })
}

func changed(path string) time.Time {
	info, err := os.Stat(path)
	if err != nil {
		return time.Time{}
	}
	return info.ModTime()
}

// attemptIn finds the folder of the attempt that is asked for: attempt_<n> of
// torchrun, attempt-<n> of gpurun. It is empty where there is none at all.
func (c collector) attemptIn(dir string) (string, error) {
	numbered := foldersOf(dir, "attempt_", "attempt-")
	if len(numbered) == 0 {
		return "", nil
	}
	if c.attempt < 0 {
		return numbered[len(numbered)-1].path, nil
	}
	for _, n := range numbered {
		if n.number == c.attempt {
			return n.path, nil
		}
	}
	return "", fmt.Errorf("%s has no attempt %d", dir, c.attempt)
}

// A folder is one whose name ends in a number.
type folder struct {
	number int
	path   string
}

// foldersOf lists the folders that are named by one of the prefixes and a number.
func foldersOf(dir string, prefixes ...string) []folder {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil // what cannot be read is reported by who reads it
	}
	var all []folder
	for _, e := range entries {
		for _, p := range prefixes {
			rest, ok := strings.CutPrefix(e.Name(), p)
			if n, err := strconv.Atoi(rest); ok && err == nil && n >= 0 && e.IsDir() {
				all = append(all, folder{n, filepath.Join(dir, e.Name())})
			}
		}
	}
	slices.SortFunc(all, func(a, b folder) int { return cmp.Compare(a.number, b.number) })
	return all
}

// attemptFolder reads the folders of all ranks of one attempt, or the folder of
// one rank.
func (c collector) attemptFolder(dir string) (strategy.Evidence, error) {
	ev := strategy.Evidence{}
	folders := foldersOf(dir, "rank", "")
	alone := len(folders) == 0
	if alone {
		folders = []folder{{rankOf(dir), dir}}
	}
	files := 0
	for _, f := range folders {
		facts, n, err := c.rankFolder(f)
		if err != nil {
			return ev, err
		}
		files += n
		ev.Facts = append(ev.Facts, facts...)
	}
	if files == 0 {
		return ev, fmt.Errorf("%s holds no stdout.log, stderr.log or error.json of a rank", strings.TrimSuffix(dir, "/"))
	}
	if !alone { // of one folder, nobody says how many ranks there were
		ev.Ranks = len(folders)
	}
	ev.Facts = append(ev.Facts, c.told()...)
	return ev, nil
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

// rankFolder reads what one rank left, and tells how many files that was. The
// time of error.json is that of the exception, which the output shows without.
func (c collector) rankFolder(f folder) (facts []strategy.Fact, files int, err error) {
	step := 0
	for _, name := range []string{"stdout.log", "stderr.log"} {
		read, err := c.stream(f.number, name, filepath.Join(f.path, name))
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, 0, err
		}
		files++
		step = max(step, read.step)
		facts = append(facts, read.facts...)
	}
	text, err := os.ReadFile(filepath.Join(f.path, "error.json"))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, 0, fmt.Errorf("read the rank's error file: %w", err)
	}
	raised, at, ok := cause.ErrorFile(text)
	for _, fact := range facts {
		if s := fact.Finding; s != nil && s.Step == 0 {
			s.Step = step // the steps are on stdout, the error on stderr
		}
	}
	if !ok {
		return facts, files, nil
	}
	for i, fact := range facts {
		if fact.Finding != nil && fact.Finding.Raised {
			facts[i].Time = at
		}
	}
	facts = append(facts, strategy.Fact{Time: at, Rank: f.number, Source: "error.json", Finding: &raised})
	return facts, files + 1, nil
}

// run reads a run directory of gpurun. An attempt that ended has its evidence in
// the journal: exits, counters and findings with their times. One that was cut
// off has its ranks' output.
func (c collector) run(dir string) (remains, error) {
	r := remains{name: dir, several: true}
	events, err := journal.Read(dir)
	if err != nil {
		return r, err
	}
	wanted := c.attempt
	ended := map[int]strategy.Evidence{}
	for _, e := range events {
		switch e := e.(type) {
		case launcher.Started:
			if c.attempt < 0 {
				wanted = e.N
			}
		case launcher.Ended:
			ended[e.Evidence.Attempt] = e.Evidence
		}
	}
	if ev, ok := ended[wanted]; ok {
		r.evidence = ev
		return r, nil
	}
	at := filepath.Join(dir, fmt.Sprintf("attempt-%d", max(wanted, 0)))
	if _, err := os.Stat(at); err != nil {
		return r, fmt.Errorf("%s has no attempt %d", dir, max(wanted, 0))
	}
	r.evidence, err = c.attemptFolder(at)
	return r, err
}
