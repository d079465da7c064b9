package node

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/gpurun/gpurun/launcher/hook"
	"github.com/gpurun/gpurun/strategy"
)

// settingsPause is the interval at which files with a framework's settings are read. Their file system may
// not report changes.
const settingsPause = 5 * time.Second

// largestSettings bounds the size of such a file, in bytes.
const largestSettings = 4 << 20

// A settingsWatch finds a job's settings outside its output: in files that the framework writes, and in the
// environment that a rank had at its end.
type settingsWatch struct {
	settings SettingsReader
	asked    map[string]string // variables that gpurun set
	dir      string            // of the attempt
	ranks    []int
	workdir  string
	began    time.Time // older files belong to an earlier attempt
	seen     map[string]bool
	emit     func(strategy.Fact)
}

// watchSettings starts the watch, which stopSettings ends. asked are the variables that gpurun set.
func (a *attempt) watchSettings(asked map[string]string) {
	a.stopSettings = func() {}
	if a.node.opts.Settings == nil {
		return
	}
	w := &settingsWatch{
		settings: a.node.opts.Settings, asked: asked, dir: a.dir, ranks: a.ranks(),
		workdir: a.node.opts.Workdir, seen: map[string]bool{}, emit: a.emit,
		began: a.began.Add(-10 * time.Millisecond), // the kernel's file times are that coarse
	}
	ctx, cancel := context.WithCancel(context.Background())
	var looking sync.WaitGroup
	looking.Go(func() { w.run(ctx) })
	a.stopSettings = func() { cancel(); looking.Wait() }
}

// run looks until ctx is done, which means that the ranks are gone, and then once more.
func (w *settingsWatch) run(ctx context.Context) {
	defer w.lookAtEnvironments()
	globs := w.settings.Files()
	if len(globs) == 0 {
		<-ctx.Done()
		return
	}
	tick := time.NewTicker(settingsPause)
	defer tick.Stop()
	for over := false; !over; {
		select {
		case <-tick.C:
		case <-ctx.Done():
			over = true
		}
		for _, glob := range globs {
			w.look(glob)
		}
	}
}

// look reads the files of this attempt that match a glob, each once.
func (w *settingsWatch) look(glob string) {
	pattern := glob
	if !filepath.IsAbs(pattern) {
		pattern = filepath.Join(w.workdir, glob)
	}
	files, err := filepath.Glob(pattern)
	if err != nil {
		return // a glob with a part that only the command fills in
	}
	for _, file := range files {
		info, err := os.Stat(file)
		if err != nil || w.seen[file] || !info.Mode().IsRegular() || info.Size() > largestSettings || info.ModTime().Before(w.began) {
			continue
		}
		text, err := os.ReadFile(file)
		if err != nil {
			continue // it may be readable later
		}
		found := w.settings.InFile(glob, text)
		w.seen[file] = len(found) > 0 // else it may be half written
		for _, setting := range found {
			setting.Text = file + ": " + setting.Text
			w.emit(strategy.Fact{Time: time.Now(), Rank: -1, Source: "file", Content: &setting})
		}
	}
}

// lookAtEnvironments compares the variables that gpurun set with those of a failed rank: a script may have
// set them itself.
func (w *settingsWatch) lookAtEnvironments() {
	for _, rank := range w.ranks {
		used := hook.Environ(w.dir, rank)
		for name, value := range used {
			if value == w.asked[name] {
				continue
			}
			for k, v := range w.settings.InVariable(name, w.asked[name], value) {
				w.emit(strategy.Fact{Time: time.Now(), Rank: rank, Source: "probe", Content: &strategy.ObservedSetting{
					Knob: k, Value: v, Text: fmt.Sprintf("%s=%s in the environment of rank %d", name, value, rank)}})
			}
		}
	}
}
