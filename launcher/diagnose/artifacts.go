// Package diagnose reads evidence from what a job left on disk: its saved output, the folders
// of torchrun's --log-dir, and run directories of gpurun. gpurun diagnose prints the diagnosis
// of that evidence.
package diagnose

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

	"github.com/gpurun/gpurun/launcher/errext"
	"github.com/gpurun/gpurun/launcher/journal"
	"github.com/gpurun/gpurun/strategy"
	"github.com/gpurun/gpurun/strategy/cause"
)

// Artifacts are the evidence that one run left on disk.
type Artifacts struct {
	Name     string
	Files    []string // that were read
	Evidence strategy.Evidence
	Several  bool // there are several ranks or streams, each with its own line numbers
	Empty    bool // the output is empty
	Running  bool // a gpurun holds the run directory, and the last attempt has not ended
	// Ceiling is the limit of each rank by limits.device_memory, in bytes; 0: none, or not known.
	Ceiling int64
	// unread are the errors of the ranks' files that could not be read; the others are the evidence.
	unread []error
}

// given is the source of facts from the command line.
const given = "command line"

// A Collector reads evidence from files and directories.
type Collector struct {
	Stdin    io.Reader // read for the name -
	Attempt  int       // of a directory; -1 for the last one
	ExitCode *int      // of the job, 128+n or -n for signal n; nil: not known
	// FileSystem is that of a path on this machine; nil: not known. full: an error says that it is.
	FileSystem func(path string, full bool) *strategy.FileSystem
}

// Collect reads a file, standard input, or a directory that a launcher left.
func (c Collector) Collect(name string) (Artifacts, error) {
	if info, err := os.Stat(name); name != "-" && err == nil && info.IsDir() {
		return c.directory(name)
	}
	if name != "-" && filepath.Base(name) == journal.File {
		return c.run(runOf(filepath.Dir(name)))
	}
	r := Artifacts{Name: name, Files: []string{name}}
	found, err := c.stream(-1, "stdout", name)
	if err != nil {
		return r, err
	}
	r.Several = found.several
	r.Empty = found.bytes == 0 && c.ExitCode == nil
	r.Evidence.Facts = append(found.facts, c.exit()...)
	r.setCeiling(name, &found.head)
	return r, nil
}

// collect reads one job.
func (c Collector) collect(job group) (Artifacts, error) {
	switch {
	case job.folder != "":
		return c.Collect(job.folder)
	case len(job.files) > 1:
		return c.together(job.files)
	}
	return c.Collect(job.files[0].path)
}

// exit is the fact of the exit code on the command line.
func (c Collector) exit() []strategy.Fact {
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
		r.Files = append(r.Files, name)
	}
	r.Name = strings.Join(r.Files, ",")
	r.Evidence.Ranks = len(seen)
	r.Evidence.Facts = append(r.Evidence.Facts, c.exit()...)
	return r, nil
}

// A Request is a command line of gpurun diagnose.
type Request struct {
	// Names are files and folders, - for Stdin, which is also read where nothing is named.
	// Ranks are outputs of single ranks of one run, as K=FILE.
	Names, Ranks []string
	Attempt      int                                               // as in Collector
	ExitCode     *int                                              // as in Collector
	FileSystem   func(path string, full bool) *strategy.FileSystem // as in Collector
	Stdin        *os.File
	Show         func(FileDiagnosis) error // prints a diagnosis; its error ends all
}

// lastSignal is the highest signal of Linux (SIGRTMAX in signal(7)).
const lastSignal = 64

// Run diagnoses all files and folders. The error names those that could not be read, with a hint.
func (q Request) Run() error {
	if len(q.Names) == 0 && len(q.Ranks) == 0 && holdsData(q.Stdin) {
		q.Names = []string{"-"}
	}
	if len(q.Names) == 0 && len(q.Ranks) == 0 {
		return errext.Errorf("gpurun diagnose slurm-1234.out", "diagnose takes the files that hold the job's output")
	}
	if n := q.ExitCode; n != nil && (*n < -lastSignal || *n > 255) {
		return errext.Errorf(fmt.Sprintf("a process ends with 0 to 255; -1 to -%d is for a signal", lastSignal),
			"--exit-code: %d is not an exit code that a job can end with", *n)
	}
	in := Collector{Stdin: q.Stdin, Attempt: q.Attempt, ExitCode: q.ExitCode, FileSystem: q.FileSystem}
	jobs, failed := in.jobsOf(q.Names)
	show := func(a Artifacts, err error) error {
		if err != nil {
			failed = append(failed, err)
			return nil
		}
		in.addFileSystems(&a.Evidence)
		failed = append(failed, a.unread...)
		return q.Show(Diagnose(a))
	}
	if len(q.Ranks) > 0 {
		if err := show(in.Ranks(q.Ranks)); err != nil {
			return err
		}
	}
	for _, job := range jobs {
		if err := show(in.collect(job)); err != nil {
			return err
		}
	}
	if err := errors.Join(failed...); err != nil {
		return errext.WithHint(err, cmp.Or(errext.Hint(err),
			"diagnose reads files of output, folders with such files, run directories of gpurun, and torchrun's --log-dir"))
	}
	return nil
}

// addFileSystems adds the file systems of the paths in errors about storage, unless a run noted
// them. The output may come from another machine: the root is everywhere, so only a mount counts.
func (c Collector) addFileSystems(e *strategy.Evidence) {
	if c.FileSystem == nil || slices.ContainsFunc(e.Facts,
		func(f strategy.Fact) bool { return strategy.As[*strategy.FileSystem](f) != nil }) {
		return
	}
	seen := map[string]bool{}
	for _, f := range e.Facts {
		path := strategy.StoragePath(f.Finding())
		if path == "" || seen[path] {
			continue
		}
		seen[path] = true
		if found := c.FileSystem(path, f.Finding().Code != cause.Storage); found != nil && found.Mount != "/" {
			found.Saved = true
			e.Add(strategy.Fact{Rank: -1, Source: "machine", Content: found})
		}
	}
}

// holdsData reports whether standard input is a file or a pipe: not a terminal, where reading
// would wait, nor /dev/null.
func holdsData(in *os.File) bool {
	info, err := in.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice == 0 && !info.IsDir()
}
