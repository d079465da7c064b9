package job

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/gpurun/gpurun/launcher/environ"
	"github.com/gpurun/gpurun/launcher/errext"
	"github.com/gpurun/gpurun/recipes/document"
)

// configSections are the tables of the user's own configuration, which are those of a
// train.toml.
var configSections = sectionsOf(func(s Section) bool { return s.Config })

// ConfigFile is where the user's defaults for all jobs are, below XDG_CONFIG_HOME or
// ~/.config; empty where the environment names no home.
func ConfigFile(env environ.Vars) string {
	folder := env["XDG_CONFIG_HOME"]
	if !filepath.IsAbs(folder) { // by its specification a relative one counts for nothing
		if !filepath.IsAbs(env["HOME"]) {
			return ""
		}
		folder = filepath.Join(env["HOME"], ".config")
	}
	return filepath.Join(folder, "gpurun", "config.toml")
}

// configured is a job about which nothing has been said but by the user's own
// configuration. The error is an *Error with every problem of that file, or has a hint.
func configured(env environ.Vars) (*Job, error) {
	j, path := defaults(), ConfigFile(env)
	if path == "" {
		return j, nil
	}
	text, err := readFile(path, largestJob)
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, unix.ENOTDIR):
		return j, nil
	case errors.Is(err, fs.ErrPermission): // a home that is somebody else's
		j.Warnings = append(j.Warnings, fmt.Sprintf("%s cannot be read, and counts for nothing", path))
		return j, nil
	case err != nil:
		return nil, errext.WithHint(fmt.Errorf("read your configuration: %w", err), "make it a file that you can read, or remove it")
	}
	root, fault := document.Decode(text, "a configuration")
	if fault != nil {
		return nil, &Error{File: path, Kind: configKind, Faults: hushed(text, []Fault{*fault})}
	}
	r := reader{root: root, dir: filepath.Dir(path), job: j, sections: configSections}
	r.unknownKeys()
	r.readRecovery()
	r.readKeys("limits")
	r.readNotify()
	r.readMetrics(true)
	if len(r.problems) > 0 {
		return nil, &Error{File: path, Kind: configKind, Faults: hushed(text, document.Faults(text, r.problems))}
	}
	return j, nil
}

// configKind is what such a file is not, where something in it is wrong.
const configKind = "configuration that gpurun can use"
