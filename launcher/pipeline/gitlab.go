package pipeline

import (
	"fmt"
	"io"
	"time"

	"github.com/gpurun/gpurun/launcher"
)

// gitlab folds the log of a job: an attempt is a section, which a reader can close. Lines
// of the source cannot be annotated there, but tests can: by the JUnit report.
type gitlab struct {
	words io.Writer
	open  string // the section that is open, empty for none
}

func (g *gitlab) take(e launcher.Event) {
	if g == nil {
		return
	}
	switch e := e.(type) {
	case launcher.Started:
		g.end()
		g.open = fmt.Sprintf("gpurun_attempt_%d", e.N)
		g.mark("start", fmt.Sprintf("attempt %d", e.N))
	case launcher.Ended, launcher.Finished:
		g.end()
	}
}

// end closes the section that is open.
func (g *gitlab) end() {
	if g == nil || g.open == "" {
		return
	}
	g.mark("end", "")
	g.open = ""
}

// mark writes what GitLab takes for the beginning or the end of a section.
func (g *gitlab) mark(what, title string) {
	if g.words != nil {
		fmt.Fprintf(g.words, "\x1b[0Ksection_%s:%d:%s\r\x1b[0K%s\n", what, time.Now().Unix(), g.open, title)
	}
}
