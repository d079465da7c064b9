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
	"github.com/gpurun/gpurun/launcher/private"
	"github.com/gpurun/gpurun/model"
	"github.com/gpurun/gpurun/strategy"
)

// CommandFile is the name of the file in an attempt's folder that has its command
// as the job got it, secrets and all: {"argv", "env"}, env being what gpurun set.
const CommandFile = "command.json"

// Write puts the plan, the command, the changed files and their diff into an
// attempt's folder, and links beside each changed file what lay beside its original.
func (j *Journal) Write(dir string, plan strategy.Plan, c model.Command) error {
	if err := writeJSON(private.WriteCopy, filepath.Join(dir, "plan.json"), plan); err != nil { // the journal has it
		return err
	}
	if err := writeJSON(private.WriteFile, filepath.Join(dir, CommandFile), c); err != nil {
		return err
	}
	if c.Diff != "" {
		if err := private.WriteCopy(filepath.Join(dir, "diff.patch"), []byte(j.mask.Config(c.Diff)), private.Mode); err != nil {
			return err
		}
	}
	for path, content := range c.Files {
		if err := private.MkdirBelow(dir, filepath.Dir(path)); err != nil {
			return fmt.Errorf("make the folder of a changed file: %w", err)
		}
		if err := private.WriteFile(path, content, modeOf(path, c.Siblings)); err != nil {
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
			text := fmt.Sprintf("warning: %s has more than %d entries: beside the changed copy of its file lie those that the job's command and changed files name, and folders; %d were left out", original, most, left)
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
	return write(path, append(text, '\n'), private.Mode)
}

// modeOf is the mode of the file that a changed copy was made of: whoever was not
// to read the one is not to read the other. It is private.Mode where that file is
// not known.
func modeOf(path string, siblings map[string]string) fs.FileMode {
	original, known := siblings[filepath.Dir(path)]
	if !known {
		return private.Mode
	}
	info, err := os.Stat(filepath.Join(original, filepath.Base(path)))
	if err != nil {
		return private.Mode
	}
	return info.Mode().Perm()
}

// mostSiblings bounds how many entries are linked beside a changed file. The folder of a
// configuration file may be that of a whole data set.
const mostSiblings = 1000

// named reports whether the command or a changed file mentions an entry of a folder, with or
// without the end of its name.
func named(c model.Command) func(name string) bool {
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

// linkSiblings links the entries of the folder original into the folder copies, except those
// that have a changed copy there and those that hold the copies: a run directory, gpurun's or
// this one, would lead into itself. Of more than most entries it links those that are named,
// then folders, and reports how many it left out.
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
			return left, fmt.Errorf("link beside a changed file: %w", err)
		}
	}
	return left, nil
}

// within reports whether a path is a folder or lies below it, whatever links lead there.
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
