package cause

import "strings"

// complaints are words of programs that stop with an error. They count only in the last line of
// the output of a process that ended with 1.
var complaints = []string{
	"error", "not found", "no such", "missing", "invalid", "fail", "cannot", "can't", "could not", "unable to", "must ",
	"does not", "doesn't", "is required", "are required", "unknown ", "unsupported", "not supported", "expected", "abort", "exiting",
	"refus", "mismatch", "denied", "not allowed", "not a ", "not an ",
}

// complaintLimit is how long such a line may be.
const complaintLimit = 400

// complains reports whether a line says that something is wrong.
func complains(text string) bool {
	text = strings.ToLower(strings.TrimSpace(text))
	if len(text) > complaintLimit || !strings.Contains(text, " ") {
		return false
	}
	if _, rest, ok := strings.Cut(text, "no "); ok && strings.Contains(rest, " found") {
		return true
	}
	if _, _, isStep := step(text); isStep {
		return false
	}
	return contains(text, complaints)
}

// complain reports the line as the last one of the process.
func (s *Scanner) complain(seg segment, line int) {
	s.seq++
	s.give(Finding{
		Code: UserError, Weight: WeightWarning, Remarks: []Remark{SaysComplaint}, Phase: NoPhase, Rank: seg.rank,
		Stream: s.stream, Seq: s.seq, Line: max(1, line), Text: clip(strings.TrimSpace(seg.text), textLimit),
	})
}
