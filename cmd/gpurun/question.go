package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/gpurun/gpurun/launcher/commandline"
	"github.com/gpurun/gpurun/launcher/errext"
	"github.com/gpurun/gpurun/launcher/journal"
	"github.com/gpurun/gpurun/launcher/show"
	"github.com/gpurun/gpurun/strategy"
)

// defaultStartTimeout is the default of --start-timeout.
const defaultStartTimeout = 2 * time.Minute

// A question asks the processes of a job what they run with: by a start, or in a run that has ended.
type question struct {
	start   bool
	timeout time.Duration
	history []strategy.Attempt // of the run that --from names
}

// readQuestion takes --start and --start-timeout from the words of a verb, where they precede the job, and --from,
// which takes the job of a run in their place: it goes to the folder where the run was started. The error has a hint.
func readQuestion(args []string) (q question, rest []string, err error) {
	q.timeout, rest = defaultStartTimeout, slices.Clone(args)
	for i := 0; i < len(rest) && strings.HasPrefix(rest[i], "-"); {
		name, value, attached := strings.Cut(rest[i], "=")
		end := i + 1
		if name != "--start-timeout" && name != "--from" && rest[i] != "--start" {
			i++
			continue
		}
		if name != "--start" && !attached && end < len(rest) {
			value, end = rest[end], end+1
		}
		rest = slices.Delete(rest, i, end)
		switch name {
		case "--start":
			q.start = true
		case "--start-timeout":
			if q.timeout, err = time.ParseDuration(value); err != nil || q.timeout <= 0 {
				return q, nil, errext.Errorf("write --start-timeout 5m", "--start-timeout: %q is not a time to wait", value)
			}
		case "--from":
			var of []string
			if of, q.history, err = ofRun(value); err != nil {
				return q, nil, err
			}
			rest = append(rest, of...)
		}
	}
	return q, rest, nil
}

// ask returns the attempts that answer the question; nil if nothing was asked. It writes to w that the job starts.
func (q question) ask(ctx context.Context, args []string, w io.Writer) ([]strategy.Attempt, error) {
	if !q.start {
		return q.history, nil
	}
	fmt.Fprintf(w, "gpurun: the job starts, and is ended when its first batch has reached the model, after at most %s: "+
		"it makes the folders and trackers that it makes until then\n", q.timeout)
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	defer stop()
	a, err := trialStart{Args: args, Timeout: q.timeout, Output: w}.run(ctx)
	if err != nil {
		return nil, err
	}
	return []strategy.Attempt{a}, nil
}

// ofRun returns the words of a run's job, and its attempts; it goes to the folder where the run was started.
func ofRun(name string) (args []string, history []strategy.Attempt, err error) {
	r, err := show.FindRun(".", name)
	if err != nil {
		return nil, nil, err
	}
	begun, err := journal.ReadStart(r.Path)
	if err != nil {
		return nil, nil, fmt.Errorf("read how the run was started: %w", err)
	}
	events, err := journal.Read(r.Path)
	if err != nil {
		return nil, nil, err
	}
	if err := os.Chdir(begun.Dir); err != nil {
		return nil, nil, fmt.Errorf("go to where the run was started: %w", err)
	}
	return commandline.WithOption(begun.Args, "", ""), historyOf(events), nil
}
