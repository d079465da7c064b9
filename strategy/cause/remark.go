package cause

import (
	"slices"
	"strings"
)

// A Remark is what the words of a finding tell beside their cause.
type Remark string

// The remarks.
const (
	// SaysEnded: a shell, a launcher or a runtime only says that a process failed.
	// An exit code says as much.
	SaysEnded Remark = "ended"
	// SaysElsewhere: the words announce a failure that further words say better.
	SaysElsewhere Remark = "elsewhere"
	// SaysWorker: the words are about a data loader's worker process.
	SaysWorker Remark = "loader-worker"
	// SaysKilled: a process was ended by SIGKILL.
	SaysKilled Remark = "killed"
	// SaysTimeLimit: a scheduler ended the job because its time was up.
	SaysTimeLimit Remark = "time-limit"
)

// A said is one form of words with what it tells beside a cause.
type said struct {
	remark Remark
	words  string
	code   Code   // only in findings of this code; empty: of any
	not    string // and only without these words
}

// remarks is the catalogue of such words. A finding may match several.
var remarks = []said{
	{remark: SaysEnded, code: Unknown, not: " code 137", words: "Aborted (core dumped)"},
	{remark: SaysEnded, code: Unknown, not: " code 137", words: "zsh: abort"},
	{remark: SaysEnded, code: Unknown, not: " code 137", words: "terminate called after throwing an instance of"},
	{remark: SaysEnded, code: Unknown, not: " code 137", words: "Exited with exit code"}, // srun
	{remark: SaysEnded, code: Unknown, not: " code 137", words: "exited on signal 6 (Aborted)"},
	{remark: SaysEnded, code: Unknown, not: " code 137", words: "detected that one or more processes exited with non-zero status"},
	{remark: SaysEnded, code: Unknown, not: " code 137", words: "BAD TERMINATION OF ONE OF YOUR APPLICATION PROCESSES"},
	{remark: SaysEnded, code: Unknown, not: " code 137", words: "make: *** ["},
	{remark: SaysEnded, code: Unknown, not: " code 137", words: "finished with exit code 1"}, // IDEs
	{remark: SaysEnded, code: Unknown, not: " code 137", words: "terminated with exit code 1"},
	{remark: SaysEnded, code: Unknown, not: " code 137", words: "exited with code 1"}, // docker compose
	{remark: SaysElsewhere, words: "multiprocessing.errors.ChildFailedError"},
	{remark: SaysElsewhere, words: "Some NCCL operations have failed or timed out"},
	{remark: SaysWorker, words: "DataLoader worker"},
	{remark: SaysKilled, words: "SIGKILL"},
	{remark: SaysKilled, words: "exitcode: -9"},
	{remark: SaysKilled, words: "Killed"},
	{remark: SaysTimeLimit, code: Preempted, words: "DUE TO TIME LIMIT"}, // Slurm
	{remark: SaysTimeLimit, code: Preempted, words: "walltime"},          // PBS
	{remark: SaysTimeLimit, code: Preempted, words: "TERM_RUNLIMIT"},     // LSF
}

// Remarks lists what a finding's text tells beside its cause, in the order of the
// catalogue.
func Remarks(code Code, text string) []Remark {
	var found []Remark
	for _, r := range remarks {
		if (r.code == "" || r.code == code) && !slices.Contains(found, r.remark) &&
			strings.Contains(text, r.words) && (r.not == "" || !strings.Contains(text, r.not)) {
			found = append(found, r.remark)
		}
	}
	return found
}

// Says reports whether the finding's words tell something beside its cause.
func (f *Finding) Says(r Remark) bool { return slices.Contains(f.Remarks, r) }
