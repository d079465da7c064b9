package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/fsnotify/fsnotify"

	"github.com/gpurun/gpurun/launcher"
	"github.com/gpurun/gpurun/launcher/errext"
	"github.com/gpurun/gpurun/launcher/journal"
	"github.com/gpurun/gpurun/strategy"
)

// A trialStart is one start of a job.
type trialStart struct {
	// Args are the words of the job, as gpurun takes them.
	Args []string
	// Timeout bounds the wait for the first batch.
	Timeout time.Duration
	// Output gets the end of what the job prints, if it does not come to its first batch.
	Output io.Writer
}

// trialFlags are the flags of a trial: it changes nothing in the job, and begins as the job is written. With --mode off
// nothing would be loaded into the job that could report.
var trialFlags = []string{"--fresh", "--max-attempts", "1", "--no-in-place"}

// run starts the job by gpurun itself, with a run directory that it removes. It returns the attempt; an error has a
// hint.
func (s trialStart) run(ctx context.Context) (_ strategy.Attempt, err error) {
	gpurun, err := os.Executable()
	if err != nil {
		return strategy.Attempt{}, fmt.Errorf("find gpurun's own program: %w", err)
	}
	folder, err := os.MkdirTemp("", "gpurun-start-")
	if err != nil {
		return strategy.Attempt{}, fmt.Errorf("make a run directory: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(folder)) }()
	run := filepath.Join(folder, "run")
	cmd := exec.Command(gpurun, append(append(trialFlags[:len(trialFlags):len(trialFlags)], "--run-dir", run),
		s.Args...)...)
	var printed outputTail
	cmd.Stdout, cmd.Stderr = &printed, &printed
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // a terminal's Ctrl-C is passed on below
	watch, err := watchIn(folder)
	if err != nil {
		return strategy.Attempt{}, err
	}
	defer watch.Close()
	if err := cmd.Start(); err != nil {
		return strategy.Attempt{}, fmt.Errorf("start the job: %w", err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	over := time.NewTimer(s.Timeout)
	defer over.Stop()
	why, running := "", true
	for reached := false; running && !reached && why == ""; {
		select {
		case event := <-watch.Events:
			reached = watch.reached(event)
		case <-over.C:
			why = fmt.Sprintf("no batch has reached a model within %s", s.Timeout)
		case <-ctx.Done():
			why = "stopped"
		case <-ended:
			running = false
		}
	}
	if running {
		_ = cmd.Process.Signal(os.Interrupt) // it may have ended meanwhile
		<-ended
	}
	defer func() {
		if err != nil {
			_, _ = s.Output.Write(printed.text) // it helps to find out why, and nothing depends on it
		}
	}()
	if why != "" {
		return strategy.Attempt{},
			errext.Errorf("a longer --start-timeout waits longer; gpurun plan without --start starts nothing", "%s", why)
	}
	return attemptOf(run)
}

// An outputTail keeps the end of what is written to it.
type outputTail struct{ text []byte }

// mostPrinted bounds what is kept, in bytes.
const mostPrinted = 16 << 10

func (t *outputTail) Write(text []byte) (int, error) {
	t.text = append(t.text, text...)
	t.text = t.text[max(len(t.text)-mostPrinted, 0):]
	return len(text), nil
}

// attemptOf reads the attempt of a run that a trial has ended.
func attemptOf(run string) (strategy.Attempt, error) {
	events, err := journal.Read(run)
	if err != nil {
		return strategy.Attempt{}, errext.WithHint(errors.New("the job could not be started"), "its messages are above")
	}
	history := historyOf(events)
	if len(history) == 0 || !history[0].Asked {
		return strategy.Attempt{},
			errext.WithHint(errors.New("the job ended before a batch reached a model, or gpurun's hook is not in its process"),
				"its output is above; gpurun plan without --start starts nothing")
	}
	return history[0], nil
}

// historyOf returns the attempts of a run by its events.
func historyOf(events []launcher.Event) []strategy.Attempt {
	state, _ := launcher.Resume(nil, "", events)
	return state.History
}

// A modelWatch sees when the processes of a run report their model: in a file of each rank's folder.
type modelWatch struct{ *fsnotify.Watcher }

func watchIn(folder string) (modelWatch, error) {
	w, err := fsnotify.NewWatcher()
	if err == nil {
		err = w.Add(folder)
	}
	if err != nil {
		return modelWatch{}, fmt.Errorf("watch the run: %w", err)
	}
	return modelWatch{w}, nil
}

// reached adds new folders to the watch, and reports whether a process has called its model.
func (w modelWatch) reached(event fsnotify.Event) bool {
	info, err := os.Stat(event.Name)
	if err != nil {
		return false // a temporary file
	}
	if !info.IsDir() {
		return reports(event.Name)
	}
	if w.Add(event.Name) != nil {
		return false
	}
	entries, _ := os.ReadDir(event.Name) // what was made before the folder was watched
	for _, e := range entries {
		if w.reached(fsnotify.Event{Name: filepath.Join(event.Name, e.Name())}) {
			return true
		}
	}
	return false
}

// reports reports whether a file is a process's report that has a model.
func reports(path string) bool {
	name := filepath.Base(path)
	if !strings.HasPrefix(name, "process") || !strings.HasSuffix(name, ".json") {
		return false
	}
	text, err := os.ReadFile(path)
	var report struct {
		Model *json.RawMessage `json:"model"`
	}
	return err == nil && json.Unmarshal(text, &report) == nil && report.Model != nil
}
