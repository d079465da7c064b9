package cause

import "strings"

// LSF writes a report about each job into the file of its output: below the output, or above it.
// Several jobs may share the file. The report has the job's script, which is no output.
const (
	lsfBegins  = "Sender: LSF System <"
	lsfScript  = "Your job looked like:"
	lsfAbove   = "The output (if any) is above this job summary."
	lsfFollows = "The output (if any) follows:"
	lsfRule    = "------------------------------------------------------------"
)

// lsfLines bounds the lines of a report, and lsfWatch the blank ones between two lines.
const lsfLines, lsfWatch = 4000, 16

// An lsf follows the reports in a stream.
type lsf struct {
	inside  bool // a report that has not ended
	script  int  // rules still to come until the script has ended
	begun   int  // the line at which the report began
	seen    bool
	follows bool // the output of the last job is below its report
	ended   bool // the last job has ended, with its report below the output
}

// report follows LSF's reports, and begins a start for each job. It returns true for the lines of a
// job's script.
func (s *Scanner) report(text string) bool {
	l := &s.lsf
	switch {
	case !l.inside && !l.ended && !strings.HasPrefix(text, lsfBegins):
		return false
	case strings.HasPrefix(text, lsfBegins):
		if l.seen && (l.follows || l.ended) {
			s.begin(nil, SignLauncher, s.line+1, text)
		}
		*l = lsf{inside: true, seen: true, begun: s.line}
	case l.ended:
		s.watch = max(s.watch, lsfWatch)
		if text != "" && !strings.HasPrefix(text, lsfRule) && !strings.HasPrefix(text, "PS:") &&
			!strings.HasPrefix(text, "Read file <") {
			l.ended = false
			s.begin(nil, SignLauncher, s.line+1, text)
		}
		return false
	case strings.HasPrefix(text, lsfScript):
		l.script = 2
	case l.script > 0:
		if strings.HasPrefix(text, lsfRule) {
			l.script--
		}
	case strings.HasPrefix(text, "Successfully completed."):
		s.start.well = true
	case strings.HasPrefix(text, lsfAbove):
		l.inside, l.ended = false, true
	case strings.HasPrefix(text, lsfFollows):
		l.inside, l.follows = false, true
	}
	l.inside = l.inside && s.line-l.begun < lsfLines
	s.watch = max(s.watch, lsfWatch)
	return l.script > 0
}
