// Package artifacts makes evidence of what a job left on disk: its saved output,
// the folders of torchrun's --log-dir, and run directories of gpurun. A diagnosis
// of that evidence is what gpurun diagnose says (Diagnosis).
package artifacts

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/gpurun/gpurun/launcher/journal"
	"github.com/gpurun/gpurun/strategy"
)

// Artifacts are what one run left behind, as evidence.
type Artifacts struct {
	Name     string
	Evidence strategy.Evidence
	Several  bool // ranks or streams, whose lines are numbered each for itself
	Empty    bool // nothing was in it
	// Running says that a gpurun is at work in the run directory, and that the last
	// attempt has not ended.
	Running bool
	// Ceiling is what limits.device_memory held each rank to, in bytes; 0: nothing,
	// or not known.
	Ceiling int64
}

// given is the source of facts that the command line told.
const given = "command line"

// A Collector makes evidence of files and directories.
type Collector struct {
	Stdin    io.Reader // what the name - stands for
	Attempt  int       // which one of a directory, -1 for the last one
	ExitCode *int      // that the job ended with, 128+n or -n for signal n; nil: not known
}

// Collect reads a file, standard input, or a directory that a launcher left.
func (c Collector) Collect(name string) (Artifacts, error) {
	if info, err := os.Stat(name); name != "-" && err == nil && info.IsDir() {
		return c.directory(name)
	}
	if name != "-" && filepath.Base(name) == journal.File {
		return c.run(runOf(filepath.Dir(name)))
	}
	r := Artifacts{Name: name}
	found, err := c.stream(-1, "stdout", name)
	if err != nil {
		return r, err
	}
	r.Empty = found.bytes == 0 && c.ExitCode == nil
	r.Evidence.Facts = append(found.facts, c.told()...)
	r.under(name, &found.head)
	return r, nil
}

// told is the exit code of the command line.
func (c Collector) told() []strategy.Fact {
	if c.ExitCode == nil {
		return nil
	}
	facts := strategy.EvidenceFromLog(nil, c.ExitCode).Facts
	for i := range facts {
		facts[i].Source = given
	}
	return facts
}

// Ranks reads K=FILE words as one run: each file is the output of one rank.
func (c Collector) Ranks(words []string) (Artifacts, error) {
	r := Artifacts{Several: true}
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
		r.Evidence.Facts = append(r.Evidence.Facts, found.facts...)
		seen[rank] = true // a rank may have a file for each stream
		names = append(names, name)
	}
	r.Name = strings.Join(names, ",")
	r.Evidence.Ranks = len(seen)
	r.Evidence.Facts = append(r.Evidence.Facts, c.told()...)
	return r, nil
}
