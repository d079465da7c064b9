package journal

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"unicode"

	"github.com/gpurun/gpurun/launcher"
	"github.com/gpurun/gpurun/launcher/system"
	"github.com/gpurun/gpurun/strategy"
)

// CommandFile, in an attempt's folder, has the job's command, secrets included: {"argv", "env"}, env being the
// variables that gpurun set.
const CommandFile = "command.json"

// Write puts the plan, the command, the changed files and their diff into an attempt's folder, and links the
// neighbours of each changed file's original next to the copy.
func (j *Journal) Write(dir string, plan strategy.Plan, c strategy.Command) error {
	if err := writeJSON(system.WriteCopy, filepath.Join(dir, "plan.json"), plan); err != nil { // the journal has it
		return err
	}
	// for people; a later start makes it again
	if err := writeJSON(system.WriteCopy, filepath.Join(dir, CommandFile), c); err != nil {
		return err
	}
	if c.Diff != "" {
		if err := system.WriteCopy(filepath.Join(dir, "diff.patch"), []byte(j.mask.Config(c.Diff)),
			system.PrivateMode); err != nil {
			return err
		}
	}
	for path, content := range c.Files {
		if err := system.MkdirBelow(dir, filepath.Dir(path)); err != nil {
			return fmt.Errorf("make the folder of a changed file: %w", err)
		}
		if err := system.WriteFile(path, content, modeOf(path, c.Siblings)); err != nil {
			return err
		}
	}
	for copies, original := range c.Siblings {
		most := mostSiblings
		if copies == c.Whole {
			most = math.MaxInt
		}
		left, err := linkSiblings(copies, original, named(c), most)
		if err != nil {
			return err
		}
		if left > 0 {
			text := fmt.Sprintf("warning: %s has more than %d entries: only those that the job's command and changed files name, and folders, are linked next to the changed copy; %d are not", original, most, left)
			if err := j.Append(launcher.Noticed{Text: text}); err != nil {
				return err
			}
		}
	}
	return nil
}

func writeJSON(write func(string, []byte, fs.FileMode) error, path string, value any) error {
	text, err := json.MarshalIndent(value, "", "  ")
	if err != nil {
		return fmt.Errorf("encode %s: %w", filepath.Base(path), err)
	}
	return write(path, append(text, '\n'), system.PrivateMode)
}

// modeOf is the mode of the original of a changed copy, so that the copy is as protected. It is private.Mode
// where the original is not known.
func modeOf(path string, siblings map[string]string) fs.FileMode {
	original, known := siblings[filepath.Dir(path)]
	if !known {
		return system.PrivateMode
	}
	info, err := os.Stat(filepath.Join(original, filepath.Base(path)))
	if err != nil {
		return system.PrivateMode
	}
	return info.Mode().Perm()
}

// mostSiblings bounds the entries that are linked next to a changed file. The folder of a configuration file may
// be that of a whole data set.
const mostSiblings = 1000

// named reports whether the command or a changed file mentions an entry of a folder, with or without its
// extension.
func named(c strategy.Command) func(name string) bool {
	mentioned := map[string]bool{}
	word := func(r rune) bool {
		return !unicode.IsLetter(r) && !unicode.IsDigit(r) && r != '_' && r != '-' && r != '.'
	}
	take := func(text string) {
		for _, w := range strings.FieldsFunc(text, word) {
			mentioned[strings.Trim(w, ".")] = true
		}
	}
	for _, w := range c.Argv {
		take(w)
	}
	for _, content := range c.Files {
		take(string(content))
	}
	return func(name string) bool {
		return mentioned[name] || mentioned[strings.TrimSuffix(name, filepath.Ext(name))]
	}
}

// linkSiblings links the entries of the folder original into the folder copies, except those with a changed copy
// there and those that contain the copies: a run directory would lead into itself. Of more than most entries it
// links the named ones, then folders, and returns how many it omitted.
func linkSiblings(copies, original string, named func(string) bool, most int) (left int, err error) {
	entries, err := os.ReadDir(original)
	if err != nil {
		return 0, fmt.Errorf("read the folder of a changed file: %w", err)
	}
	original, err = filepath.Abs(original)
	if err != nil {
		return 0, fmt.Errorf("find the folder of a changed file: %w", err)
	}
	entries = slices.DeleteFunc(entries, func(e fs.DirEntry) bool {
		return e.Name() == ".gpurun" || within(copies, filepath.Join(original, e.Name()))
	})
	if len(entries) > most {
		chosen := slices.DeleteFunc(slices.Clone(entries), func(e fs.DirEntry) bool { return !e.IsDir() && !named(e.Name()) })
		isNamed := func(e fs.DirEntry) bool { return named(e.Name()) }
		folders := slices.DeleteFunc(slices.Clone(chosen), isNamed)
		chosen = slices.Concat(slices.DeleteFunc(chosen, func(e fs.DirEntry) bool { return !isNamed(e) }), folders)
		chosen = chosen[:min(most, len(chosen))]
		left, entries = len(entries)-len(chosen), chosen
	}
	for _, e := range entries {
		err := os.Symlink(filepath.Join(original, e.Name()), filepath.Join(copies, e.Name()))
		if err != nil && !errors.Is(err, fs.ErrExist) {
			return left, fmt.Errorf("link next to a changed file: %w", err)
		}
	}
	return left, nil
}

// within reports whether a path is a folder or below it, through any links.
func within(path, folder string) bool {
	if real, err := filepath.EvalSymlinks(path); err == nil {
		path = real
	}
	if real, err := filepath.EvalSymlinks(folder); err == nil {
		folder = real
	}
	rel, err := filepath.Rel(folder, path)
	return err == nil && rel != ".." && !strings.HasPrefix(rel, "../")
}
