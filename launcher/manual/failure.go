package manual

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/gpurun/gpurun/launcher/errext"
	"github.com/gpurun/gpurun/launcher/job"
	"github.com/gpurun/gpurun/launcher/mask"
	"github.com/gpurun/gpurun/launcher/show"
	"github.com/gpurun/gpurun/strategy"
)

// ExitCode is how a verb ended whose outcome people and programs have already: its exit code
// is all that is left to say.
type ExitCode struct {
	Reason string
	Code   int
}

func (e *ExitCode) Error() string { return e.Reason }

// A Failure prints an error for people, and with --json for programs.
type Failure struct {
	People   io.Writer
	Programs io.Writer // nil without --json
}

// A Failed is an error in JSON.
type Failed struct {
	Error string `json:"error"`
	Hint  string `json:"hint"`
	Code  int    `json:"code"`
}

// Report prints an error, and turns it into an exit code: the error's own, or 2, since
// what has none arose before anything was started.
func (f Failure) Report(err error) int {
	page := show.NewPage(f.People, nil)
	var known *ExitCode
	var file *job.Error
	switch {
	case err == nil, errors.Is(err, job.ErrHelp):
		return 0
	case errors.As(err, &known):
		return known.Code // people and programs have the verdict
	case errors.As(err, &file):
		page.Printf("gpurun: error: %s is not a %s\n", file.File, file.Kind)
		blocks := strings.ReplaceAll(file.Error(), file.File, mask.TerminalLine(file.File))
		fmt.Fprintln(f.People, mask.TerminalLines((*mask.Masker)(nil).Config(blocks))) // they quote the file
		return f.program(Failed{fmt.Sprintf("%s is not a %s\n%v", file.File, file.Kind, file), "", strategy.CodeUsage})
	}
	for line := range strings.Lines(err.Error()) {
		page.Printf("gpurun: error: %s\n", strings.TrimRight(line, "\n"))
	}
	hint := errext.Hint(err)
	if hint != "" {
		page.Printf("gpurun: hint: %s\n", hint)
	}
	return f.program(Failed{err.Error(), hint, errext.Code(err, strategy.CodeUsage)})
}

func (f Failure) program(what Failed) int {
	if f.Programs != nil {
		_ = show.WriteJSON(f.Programs, nil, what) // only the exit code is left to report it
	}
	return what.Code
}
