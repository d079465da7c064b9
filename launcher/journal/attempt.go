package journal

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/gpurun/gpurun/launcher"
	"github.com/gpurun/gpurun/launcher/private"
	"github.com/gpurun/gpurun/strategy"
)

// CommandFile is the name of the file in an attempt's folder that has its command
// as the job got it, secrets and all: {"argv", "env"}, env being what gpurun set.
const CommandFile = "command.json"

// Write puts the plan, the command, the changed files and their diff into an
// attempt's folder, and links beside each changed file what lay beside its original.
func (j *Journal) Write(dir string, plan strategy.Plan, c launcher.Command) error {
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
		if err := linkSiblings(copies, original); err != nil {
			return err
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

// linkSiblings links the entries of the folder original into the folder copies,
// except those that have a changed copy there.
func linkSiblings(copies, original string) error {
	entries, err := os.ReadDir(original)
	if err != nil {
		return fmt.Errorf("read the folder of a changed file: %w", err)
	}
	original, err = filepath.Abs(original)
	if err != nil {
		return fmt.Errorf("find the folder of a changed file: %w", err)
	}
	for _, e := range entries {
		err := os.Symlink(filepath.Join(original, e.Name()), filepath.Join(copies, e.Name()))
		if err != nil && !errors.Is(err, fs.ErrExist) {
			return fmt.Errorf("link beside a changed file: %w", err)
		}
	}
	return nil
}
