package cause

import (
	"fmt"
	"path"
	"regexp"
	"strconv"
	"strings"
)

// A SourceLine is a line of code in a traceback.
type SourceLine struct {
	File     string `json:"file"`
	Line     int    `json:"line"`
	Function string `json:"function,omitempty"`
	Code     string `json:"code,omitempty"` // the line itself
}

// String is its short form: "train.py:41".
func (p *SourceLine) String() string { return fmt.Sprintf("%s:%d", path.Base(p.File), p.Line) }

// Words are its long form: "/home/u/train.py:41, in setup: return cfg["lr"]".
func (p *SourceLine) Words() string {
	said := fmt.Sprintf("%s:%d", p.File, p.Line)
	if p.Function != "" && p.Function != "<module>" {
		said += ", in " + p.Function
	}
	if p.Code != "" {
		said += ": " + p.Code
	}
	return said
}

// Longer ones are not shown in a sentence, in bytes.
const (
	longestFile = 512
	longestCode = 200
)

// frameLine is a traceback's line of a frame; what does not parse is in no function.
var frameLine = regexp.MustCompile(`^\s*File "([^"<][^"]*)", line (\d{1,9})(?:, in (.{1,200}))?$`)

// Place is where the finding's exception was raised: the innermost line of the job's own code,
// else of any; nil where its traceback names none.
func (f *Finding) Place() (found *SourceLine) {
	for i, line := range f.Traceback {
		m := frameLine.FindStringSubmatch(line)
		if m == nil || len(m[1]) > longestFile || ofHook.MatchString(m[1]) || found != nil && installed(m[1]) && found.Own() {
			continue
		}
		found = &SourceLine{File: m[1], Function: m[3]}
		found.Line, _ = strconv.Atoi(m[2])
		if i+1 < len(f.Traceback) && strings.HasPrefix(f.Traceback[i+1], "    ") && len(f.Traceback[i+1]) <= longestCode && !frameLine.MatchString(f.Traceback[i+1]) {
			found.Code = strings.TrimSpace(f.Traceback[i+1])
		}
	}
	return found
}

// Own reports whether the line is of the job's own code, and not of a package's.
func (p *SourceLine) Own() bool { return !installed(p.File) }

// installed reports whether a file is of a package, or of Python itself.
func installed(file string) bool {
	return strings.Contains(file, "-packages/") || strings.Contains(file, "/lib/python")
}
