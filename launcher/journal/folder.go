package journal

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/gpurun/gpurun/launcher/private"
)

// home is the folder of all runs in a working directory.
const home = ".gpurun"

// OutboxName is the folder below .gpurun that is no job's: no job may have its name.
const OutboxName = ".outbox"

// CheckFolder refuses a folder of gpurun's own that somebody else could write to, or that is
// in such a .gpurun.
func CheckFolder(dir string) error {
	for _, folder := range ownFolders(dir) {
		if err := private.CheckOwner(folder); err != nil {
			return err
		}
	}
	return nil
}

// MakeFolder makes a folder of gpurun's own below .gpurun, as run directories are made: those
// above it that are missing, too, and not where somebody else could write to it.
func MakeFolder(dir string) error { return makeRunDir(dir) }

// makeRunDir makes a run directory, and those above it that are missing. A run
// directory that somebody else could write to is refused, and so is one in such a
// .gpurun. Links are followed up to it.
func makeRunDir(dir string) error {
	own := ownFolders(dir)
	for _, folder := range own {
		if err := private.CheckOwner(folder); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	if err := private.MkdirAll(dir); err != nil {
		return err
	}
	if filepath.Base(own[0]) == home {
		ignore(own[0])
	}
	return private.CheckOwner(dir)
}

// ownFolders are the run directory and, where it is below a .gpurun, the folders
// down from there, the highest first.
func ownFolders(dir string) []string {
	folders := []string{dir}
	for at := dir; ; at = filepath.Dir(at) {
		if at != dir {
			folders = append(folders, at)
		}
		if filepath.Base(at) == home {
			slices.Reverse(folders)
			return folders
		}
		if at == filepath.Dir(at) {
			return folders[:1]
		}
	}
}

// ignore keeps the runs out of git, whose users would commit logs and commands. It
// is a courtesy: that a folder is read-only is met by who needs to write.
func ignore(folder string) {
	f, err := private.OpenFile(filepath.Join(folder, ".gitignore"), os.O_CREATE|os.O_EXCL|os.O_WRONLY)
	if err != nil {
		return
	}
	_, _ = f.WriteString("*\n")
	_ = f.Close()
}
