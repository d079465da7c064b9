package diagnose

import (
	"cmp"
	"errors"
	"fmt"
	"github.com/gpurun/gpurun/launcher/lazy"
	"github.com/gpurun/gpurun/launcher/system"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// A place is what the path of a file shows about the output in it.
type place struct {
	path string
	job  string // the path without rank, role and stream: files of one job have the same
	rank int    // -1: not known
	// number is the rank's or the task's; -1: none. Those of a job have no gaps: rank8.log and
	// rank16.log are of two jobs with another rank of LoRA.
	number int
}

// What paths show. Slurm's array tasks, slurm-<job>_<task>.out, are jobs of their own.
var (
	// DeepSpeed's --enable_each_rank_log: each node's launcher takes its own time.
	ofDeepSpeed = lazy.Regexp(`^\d{14}_rank(\d+)\.log$`)
	// submitit, which Lightning's and Meta's launchers use: <job>_<task>_log.out.
	ofSubmitit = lazy.Regexp(`^(\d+(?:_\d+)?)_(\d+)_log\.(?:out|err)$`)
	// PBS and SGE: <name>.o<job> and <name>.e<job>.
	ofPBS = lazy.Regexp(`\.p?[oe](\d{2,}(?:[.-]\d+)?)$`)
	// torchrun's --log-dir.
	ofTorchrun = lazy.Regexp(`(^|/)(attempt_\d+)/(\d{1,6})/(std(?:out|err)\.log)$`)
	// rank0.log, train-rank_3.err, Open MPI's and Horovod's rank.3/stdout.
	ofRank = lazy.Regexp(`(?i)(^|[/._-])rank[._-]?(\d{1,6})([/._-]|$)`)
	// The tasks of a job, and the roles of Kubernetes' PyTorchJob.
	ofTask = lazy.Regexp(
		`(?i)(^|[/._-])(?:local_?rank|proc|process|task|worker|replica|master|chief|launcher)[._-]?(\d{1,6})([/._-]|$)`)
	ofNode = lazy.Regexp(`(?i)(^|[/._-])(?:node|host)[._-]?(\d{1,6})([/._-]|$)`)
	// slurm-1.out and slurm-1.err, train.stdout.log, train.log and train.err.
	ofStream = lazy.Regexp(`(?i)(^|[/._-])(?:stdout|stderr|out|err|output|error)([._-][^/]*|)$`)
	ofLog    = lazy.Regexp(`\.log$`)
)

// placeOf reads a path.
func placeOf(path string) place {
	p := place{path: path, rank: -1, number: -1}
	dir, name := filepath.Split(path)
	name = unpackedName(name)
	if m := ofDeepSpeed().FindStringSubmatch(name); m != nil {
		p.rank, _ = strconv.Atoi(m[1])
		p.job = dir + deepSpeed
		return p
	}
	if m := ofSubmitit().FindStringSubmatch(name); m != nil {
		p.rank, _ = strconv.Atoi(m[2])
		p.job = dir + m[1] + "<submitit>"
		return p
	}
	p.job = ofTorchrun().ReplaceAllString(dir+ofPBS().ReplaceAllString(name, ".<stream>$1"), "$1$2/rank$3/$4")
	if m := ofRank().FindStringSubmatch(p.job); m != nil {
		p.rank, _ = strconv.Atoi(m[2])
		p.number = p.rank
	} else if m := ofTask().FindStringSubmatch(p.job); m != nil {
		p.number, _ = strconv.Atoi(m[2])
	}
	p.job = ofRank().ReplaceAllString(p.job, "$1<rank>$3")
	p.job = ofTask().ReplaceAllString(p.job, "$1<task>$3")
	p.job = ofNode().ReplaceAllString(p.job, "$1<node>$3")
	p.job = ofStream().ReplaceAllString(p.job, "$1<stream>$2")
	if !strings.Contains(p.job, "<stream>") {
		p.job = ofLog().ReplaceAllString(p.job, ".<stream>")
	}
	return p
}

// deepSpeed is the job of all logs that DeepSpeed wrote in a folder.
const deepSpeed = "<deepspeed>"

// unpackedName is the name of a file before it was compressed.
func unpackedName(name string) string {
	for _, suffix := range []string{".gz", ".bz2", ".zst", ".xz"} {
		name = strings.TrimSuffix(name, suffix)
	}
	return name
}

// A group is the files of one job, or a folder that a launcher left.
type group struct {
	files  []place
	folder string
}

// jobsOf sorts files and folders into jobs, in the order in which they are named. A folder whose
// structure no launcher made is searched for output.
func (c Collector) jobsOf(names []string) ([]group, []error) {
	var found []group
	var failed []error
	for _, name := range names {
		info, err := os.Stat(name)
		switch {
		case name == "-" || err != nil || !info.IsDir():
			found = append(found, group{files: []place{placeOf(name)}})
		case c.leftByLauncher(name):
			found = append(found, group{folder: name})
		default:
			in := search{collector: c}
			in.folder(name, 0)
			failed = append(failed, in.unread...)
			if len(in.found) == 0 && len(in.unread) == 0 {
				failed = append(failed, fmt.Errorf("%s holds no output of a job", strings.TrimSuffix(name, "/")))
			}
			found = append(found, in.found...)
		}
	}
	return joined(found), failed
}

// joined puts the files of one job together.
func joined(all []group) []group {
	var jobs []group
	of := map[string]int{}
	ranks := map[string]map[int]bool{}
	for _, g := range all {
		if len(g.files) != 1 || g.files[0].path == "-" {
			jobs = append(jobs, g)
			continue
		}
		p := g.files[0]
		i, known := of[p.job]
		if strings.HasSuffix(p.job, deepSpeed) && ranks[p.job][p.rank] {
			known = false // the next run in the same folder
		}
		if !known {
			of[p.job], ranks[p.job] = len(jobs), map[int]bool{}
			jobs, i = append(jobs, group{}), len(jobs)
		}
		ranks[p.job][p.rank] = true
		if !slices.ContainsFunc(jobs[i].files, func(q place) bool { return q.path == p.path }) {
			jobs[i].files = append(jobs[i].files, p)
		}
	}
	var apart []group
	for _, g := range jobs {
		if gaps(g.files) {
			for _, p := range g.files {
				apart = append(apart, group{files: []place{p}})
			}
			continue
		}
		apart = append(apart, g)
	}
	return apart
}

// gaps reports whether the numbers of the files are not those of one job's ranks or tasks.
func gaps(files []place) bool {
	numbers := map[int]bool{}
	least, most := math.MaxInt, -1
	for _, p := range files {
		if p.number >= 0 {
			numbers[p.number] = true
			least, most = min(least, p.number), max(most, p.number)
		}
	}
	return len(numbers) > 1 && most-least+1 != len(numbers)
}

// leftByLauncher reports whether gpurun or torchrun made the folder's structure.
func (c Collector) leftByLauncher(dir string) bool {
	if runIn(dir) != "" {
		return true
	}
	for _, pattern := range []string{"attempt[-_][0-9]*", filepath.Join("*", "attempt_[0-9]*")} {
		if found, _ := filepath.Glob(filepath.Join(quotePattern(dir), pattern)); slices.ContainsFunc(found, isFolder) {
			return true
		}
	}
	folders, _ := ranksIn(dir)
	return slices.ContainsFunc(folders, func(f folder) bool {
		return slices.ContainsFunc([]string{"stdout.log", "stderr.log", "error.json"},
			func(name string) bool { return isFile(filepath.Join(f.path, name)) })
	})
}

func isFolder(path string) bool {
	info, err := os.Lstat(path)
	return err == nil && info.IsDir()
}

// The bounds of a search: a folder of a job may hold checkpoints and data sets.
const (
	mostLogs    = 10_000
	deepestLogs = 8
	mostEntries = 100_000
)

// A search finds the output of jobs below a folder. It follows no links.
type search struct {
	collector Collector
	found     []group
	unread    []error // of output that may not be read, or has to be converted
}

// notSearched are folders that hold no output of jobs.
var notSearched = []string{"node_modules", "site-packages", "__pycache__", "lightning_logs", "checkpoints", "tb_logs",
	"tensorboard"}

func (s *search) folder(dir string, depth int) {
	entries, err := system.ListFolder(dir, mostEntries)
	if err != nil || depth > deepestLogs {
		return
	}
	slices.SortStableFunc(entries, func(a, b os.DirEntry) int { return cmp.Compare(a.Name(), b.Name()) })
	for _, e := range entries {
		path := filepath.Join(dir, e.Name())
		switch {
		case len(s.found) == mostLogs || strings.HasPrefix(e.Name(), "."):
		case e.IsDir() && slices.Contains(notSearched, e.Name()):
		case e.IsDir() && s.collector.leftByLauncher(path):
			s.found = append(s.found, group{folder: path})
		case e.IsDir():
			s.folder(path, depth+1)
		case e.Type().IsRegular() && namesOutput(e.Name()):
			s.file(path)
		}
	}
}

// namesOutput reports whether a file has a name that people and schedulers give to output.
func namesOutput(name string) bool {
	name = unpackedName(strings.ToLower(name))
	if strings.HasPrefix(name, "debug") && strings.HasSuffix(name, ".log") {
		return false // of W&B itself, next to the job's output.log
	}
	switch filepath.Ext(name) {
	case ".log", ".out", ".err", ".stdout", ".stderr":
		return true
	case ".txt":
		return ofOutput().MatchString(name)
	case "":
		return name == "stdout" || name == "stderr" || name == "output" || name == "log"
	}
	return ofPBS().MatchString(name)
}

// ofOutput matches the names of text files that hold output.
var ofOutput = lazy.Regexp(
	`(^|[._-])(log|logs|out|err|output|stdout|stderr|slurm|nohup|console|train|training|rank\d*)([._-]|$)`)

// file adds a file that can be the output of a job.
func (s *search) file(path string) {
	f, err := system.OpenFile(path, os.O_RDONLY)
	if err != nil {
		s.unread = append(s.unread, fmt.Errorf("read the job's output: %w", err))
		return
	}
	defer f.Close()
	switch _, err = asText(path, f); {
	case err == nil:
		s.found = append(s.found, group{files: []place{placeOf(path)}})
	case errors.Is(err, errUnread):
		s.unread = append(s.unread, err)
	}
}

// together reads the files of one job.
func (c Collector) together(files []place) (Artifacts, error) {
	r := Artifacts{Name: nameOf(files), Several: true, Empty: c.ExitCode == nil}
	ranks := map[int]bool{}
	steps := map[int]int{}
	for _, f := range files {
		found, err := c.stream(f.rank, filepath.Base(f.path), f.path)
		if err != nil {
			r.unread = append(r.unread, err)
			continue
		}
		r.Files = append(r.Files, f.path)
		r.Evidence.Facts = append(r.Evidence.Facts, found.facts...)
		r.Empty = r.Empty && found.bytes == 0
		steps[f.rank] = max(steps[f.rank], found.step)
		if f.rank >= 0 {
			ranks[f.rank] = true
		}
		if r.Ceiling == 0 {
			r.setCeiling(f.path, &found.head)
		}
	}
	if len(r.Files) == 0 {
		return r, errors.Join(r.unread...)
	}
	for _, f := range r.Evidence.Facts {
		setStep(f, steps[f.Rank])
	}
	r.Evidence.Ranks = len(ranks)
	r.Evidence.Facts = append(r.Evidence.Facts, c.exit()...)
	return r, nil
}

// mostNamed is the number of files of a job that its diagnosis names; --json lists all.
const mostNamed = 3

// nameOf is the name of a job of several files.
func nameOf(files []place) string {
	var names []string
	for _, f := range files[:min(len(files), mostNamed)] {
		names = append(names, f.path)
	}
	name := strings.Join(names, ",")
	if more := len(files) - len(names); more > 0 {
		name += fmt.Sprintf(" and %d more", more)
	}
	return name
}
