// Package probe is what the training process itself can tell about its end.
//
// A rank that raised and then hangs, in an atexit function, in a destructor or in a
// collective that its peers will never join, has no exit that could be waited for.
// Two files tell of the exception nevertheless:
//
//   - error.json, which torch.distributed.elastic's @record writes where a script
//     uses it;
//   - probe.json, which the probe writes: a sitecustomize.py on the rank's
//     PYTHONPATH, with a hook before sys.excepthook. It is there before any other
//     hook, atexit function or destructor runs.
//
// Watch sees both as they appear.
//
// # What the probe promises
//
// Python goes on as if the probe were not there. The sitecustomize that would have
// been found is loaded, PYTHONPATH, sys.path and sys.modules are as without the
// probe when the script starts, and sys.excepthook still is sys.__excepthook__. It
// imports nothing that Python does not import by itself and takes between half a
// millisecond and three, depending on whether Python may keep the compiled file.
//
// Only the rank itself writes: neither a fork of it, nor a process that it starts,
// nor a thread. SystemExit and KeyboardInterrupt are no failures.
//
// # Limits
//
//   - Nothing is written under python -S, -E, -I or -i, by other programs, and by a
//     Python that a rank's shell script runs without exec.
//   - Where a script's own excepthook neither calls the one before it nor
//     sys.__excepthook__, the file is written as the last atexit function runs.
//   - A finally clause that hangs ends no exception: neither the probe nor @record
//     knows of it, nor does the output.
//   - os._exit, a signal and a crash in native code leave no file. The exit tells.
package probe

import (
	"embed"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/gpurun/gpurun/launcher/private"
)

// hook is the probe's Python part.
//
//go:embed sitecustomize.py report.py
var hook embed.FS

// The files in a rank's folder that tell how it ended.
const (
	probeFile = "probe.json"
	errorFile = "error.json" // TORCHELASTIC_ERROR_FILE
)

// fileVariable tells the probe where to write, and whether to.
const fileVariable = "GPURUN_PROBE_FILE"

// namesVariable tells the probe of which variables it tells the values.
const namesVariable = "GPURUN_PROBE_NAMES"

// Install puts the hook into a new folder below that of the attempt, whose name
// nobody can guess and which only the user can write to: Python runs what it finds
// there, a compiled file in its __pycache__ first. Environ gives the variables
// to set for a rank with the global number rank, whose environment, as KEY=value, is
// env so far: its PYTHONPATH is kept behind the hook's folder. What a rank tells
// includes the values that the variables in names then have: see Environ.
//
// An error means that the ranks have to do without the probe.
func Install(dir string, names ...string) (environ func(rank int, env []string) map[string]string, err error) {
	dir, err = filepath.Abs(dir)
	if err != nil {
		return nil, fmt.Errorf("install the probe: %w", err)
	}
	if strings.ContainsRune(dir, os.PathListSeparator) {
		return nil, fmt.Errorf("install the probe: PYTHONPATH cannot hold %q, which contains a colon", dir)
	}
	folder, err := os.MkdirTemp(dir, "probe-*")
	if err != nil {
		return nil, fmt.Errorf("install the probe: %w", err)
	}
	files, err := hook.ReadDir(".")
	if err != nil {
		return nil, fmt.Errorf("install the probe: %w", err)
	}
	for _, f := range files {
		text, err := hook.ReadFile(f.Name())
		if err == nil {
			err = plant(filepath.Join(folder, f.Name()), text)
		}
		if err != nil {
			return nil, fmt.Errorf("install the probe: %w", err)
		}
	}
	return func(rank int, env []string) map[string]string {
		path := folder
		if others := lookup(env, "PYTHONPATH"); others != "" {
			path += string(os.PathListSeparator) + others
		}
		variables := map[string]string{"PYTHONPATH": path, fileVariable: filepath.Join(rankFolder(dir, rank), probeFile)}
		if len(names) > 0 {
			variables[namesVariable] = strings.Join(names, ",")
		}
		return variables
	}, nil
}

// plant writes a file that is not there yet.
func plant(path string, text []byte) error {
	f, err := private.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY)
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	return errors.Join(err, f.Close())
}

// rankFolder is where a rank's files are: its logs, and what it tells of its end.
func rankFolder(dir string, rank int) string {
	return filepath.Join(dir, fmt.Sprintf("rank%d", rank))
}

// lookup finds a variable's value; the last one counts, as for execve.
func lookup(env []string, name string) (value string) {
	for _, word := range env {
		if v, ok := strings.CutPrefix(word, name+"="); ok {
			value = v
		}
	}
	return value
}
