package show

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"text/tabwriter"
	"time"

	"golang.org/x/sys/unix"
	"golang.org/x/term"

	"github.com/gpurun/gpurun/launcher/commandline"
	"github.com/gpurun/gpurun/launcher/mask"

	"github.com/gpurun/gpurun/strategy"
)

const (
	fresh        = 15 * time.Second // figures that are older are shown with their age
	followPause  = time.Second      // between two lines of a run that is followed
	mostNext     = 5                // hints
	usualColumns = 120              // where there is no terminal
)

// public masks secrets known by name or shape.
var public *mask.Masker

// ShowStatus prints the status of runs: one in a few lines, several as a table. On a terminal a
// running run is followed until it ends, or ctx does.
func ShowStatus(ctx context.Context, out *os.File, all []RunStatus) error {
	if len(all) > 1 {
		return table(out, all, time.Now())
	}
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, unix.SIGTERM)
	defer stop()
	p := statusPage{out: out, columns: func() int { return usualColumns }}
	if term.IsTerminal(int(out.Fd())) && os.Getenv("TERM") != "dumb" {
		p.follows, p.colour = true, os.Getenv("NO_COLOR") == ""
		p.columns = func() int {
			if size, err := unix.IoctlGetWinsize(int(out.Fd()), unix.TIOCGWINSZ); err == nil && size.Col > 0 {
				return int(size.Col) - 1
			}
			return usualColumns - 1
		}
	}
	return p.show(ctx, all[0])
}

// A statusPage shows one run.
type statusPage struct {
	out     io.Writer
	columns func() int // of a line
	follows bool
	colour  bool
}

func (p statusPage) show(ctx context.Context, r RunStatus) error {
	p.printf("%s", public.Sprintf("job %s, run %s, %s\n", r.Job, r.Run, where(r)))
	look := time.NewTicker(followPause)
	defer look.Stop()
	for p.follows && r.Live() {
		p.printf("\r%s\x1b[0m\x1b[J\r", p.line(r))
		select {
		case <-ctx.Done():
			p.printf("%s\n", p.line(r))
			return nil
		case <-look.C:
		}
		next, err := statusIn(LookAtRun(r.Dir))
		if err != nil {
			p.printf("\r\x1b[J")
			return err // the run was removed
		}
		r = next
	}
	return p.printf("%s\n%s", p.line(r), ending(r))
}

func (p statusPage) printf(format string, args ...any) error {
	_, err := fmt.Fprintf(p.out, format, args...)
	return err
}

// line is the run's line, and its age.
func (p statusPage) line(r RunStatus) string {
	old := ""
	if r.Paused {
		old = dot + "paused"
	} else if age := r.Age(time.Now()); r.Live() && age > fresh {
		old = fmt.Sprintf("%s%s old", dot, short(age))
	}
	return StatusLine(r.Status, p.columns()-len([]rune(old)), p.colour) + old
}

func where(r RunStatus) string {
	switch {
	case r.Gone:
		return "cut off"
	case r.Outcome != "":
		return r.Outcome.Words()
	}
	if r.Paused {
		return fmt.Sprintf("pid %d on %s, paused: kill -CONT %d continues it", r.PID, r.Host, r.PID)
	}
	return fmt.Sprintf("pid %d on %s", r.PID, r.Host)
}

// ending is how a run ended, if it did.
func ending(r RunStatus) string {
	switch {
	case r.Gone:
		return public.Sprintf("gpurun (pid %d) is gone; %s\n", r.PID, r.Continue)
	case r.Reason == "":
		return ""
	}
	said := public.Sprintf("%s: %s\n", r.Outcome.Words(), r.Reason)
	if r.Trained != "" {
		said = public.Sprintf("%s\n", r.Trained)
	}
	for _, hint := range r.Next[:min(len(r.Next), mostNext)] {
		said += public.Sprintf("next: %s\n", hint)
	}
	if r.Outcome != strategy.Trained {
		said += public.Sprintf("gpurun logs %[1]s shows the rank's output, gpurun report %[1]s why it failed\n",
			commandline.PastePath(r.Dir))
	}
	return said
}

// table prints several runs, a line each.
func table(out io.Writer, all []RunStatus, now time.Time) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "JOB\tRUN\tATTEMPT\tSTEP\tRATE\tMEMORY\tTIME\tLEFT")
	for _, r := range all {
		memory, speed, left := "–", "–", "–"
		if r.Memory != nil {
			memory = label(*r.Memory) + " " + sizes(*r.Memory)
			if r.Memory.Peak > 0 {
				memory += " (peak " + figure(r.Memory.Peak, largest(*r.Memory)) + ")"
			}
		}
		speed = cmp.Or(rate(r.Rate), speed)
		if r.ETA != nil {
			left = "~" + short(r.ETA.Duration())
		}
		if r.Paused {
			left += ", paused"
		} else if age := r.Age(now); r.Live() && age > fresh {
			left += ", " + short(age) + " old"
		}
		fmt.Fprint(w, public.Sprintf("%s\t%s\t%d\t%s\t%s\t%s\t%s\t%s\n", r.Job, r.Run, r.Attempt,
			strings.TrimPrefix(steps(r.Status), "step "), speed, memory, short(r.Seconds.Duration()), left))
	}
	return w.Flush()
}
