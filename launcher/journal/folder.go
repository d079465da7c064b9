package journal

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/gpurun/gpurun/launcher"
	"github.com/gpurun/gpurun/launcher/errext"
	"github.com/gpurun/gpurun/launcher/system"
	"github.com/gpurun/gpurun/strategy"
)

// home is the folder of all runs in a working directory.
const home = ".gpurun"

// OutboxName is the folder below .gpurun that belongs to no job: no job may have its name.
const OutboxName = ".outbox"

// CheckFolder refuses a folder of gpurun's that another user could write to, or that is in such a .gpurun.
func CheckFolder(dir string) error {
	for _, folder := range ownFolders(dir) {
		if err := system.CheckOwner(folder); err != nil {
			return err
		}
	}
	return nil
}

// MakeFolder makes a folder below .gpurun as run directories are made: with missing parents, and not where another
// user could write to it.
func MakeFolder(dir string) error { return makeRunDir(dir) }

// makeRunDir makes a run directory and its missing parents. It refuses a run directory that another user could
// write to, and one in such a .gpurun. It follows links up to the run directory.
func makeRunDir(dir string) error {
	own := ownFolders(dir)
	for _, folder := range own {
		if err := system.CheckOwner(folder); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	if err := system.MkdirAll(dir); err != nil {
		return err
	}
	if filepath.Base(own[0]) == home {
		ignore(own[0])
	}
	return system.CheckOwner(dir)
}

// ownFolders are the run directory and, if it is below a .gpurun, the folders down from there, the highest first.
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

// ignore keeps the runs out of git, where they would expose logs and commands. It is best effort.
func ignore(folder string) {
	f, err := system.OpenFile(filepath.Join(folder, ".gitignore"), os.O_CREATE|os.O_EXCL|os.O_WRONLY)
	if err != nil {
		return
	}
	_, _ = f.WriteString("*\n")
	_ = f.Close()
}

// maxJournal bounds a journal, in bytes; one of a thousand attempts has a tenth of it.
const maxJournal = 256 << 20

// empty are the names in a folder that counts as empty: those of a gpurun that ended before it wrote a journal, and
// of file systems.
var empty = []string{lockFile, "lost+found", ".snapshot"}

// refuseForeign refuses a folder that is neither empty nor a run directory.
func refuseForeign(dir string) error {
	if _, err := os.Lstat(filepath.Join(dir, File)); err == nil {
		return nil
	}
	folder, err := os.Open(dir)
	if err != nil {
		return fmt.Errorf("look into the run directory: %w", err)
	}
	defer folder.Close()
	for {
		names, err := folder.Readdirnames(64)
		for _, name := range names {
			if !slices.Contains(empty, name) {
				return errext.WithCode(errext.Errorf(
					"name a folder that is empty or does not exist, or the run directory of an earlier start",
					"the folder %s is neither a run directory nor empty: it has %q", dir, name), strategy.CodeUsage)
			}
		}
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return fmt.Errorf("look into the run directory: %w", err)
		}
	}
}

// errTooLarge is the error for a journal that is none.
var errTooLarge = errors.New("it is too large for a journal")

// readRegular reads a regular file up to its present size: neither a pipe nor a device, and nothing endless.
func readRegular(path string) ([]byte, error) {
	f, err := system.OpenFile(path, os.O_RDONLY)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if info.Size() > maxJournal {
		return nil, &fs.PathError{Op: "read", Path: path, Err: fmt.Errorf("%w: %s", errTooLarge, strategy.GiB(info.Size()))}
	}
	text := make([]byte, info.Size())
	n, err := io.ReadFull(f, text)
	if errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF) {
		err = nil // it became shorter
	}
	return text[:n], err
}

// Check reports that the run directory is gone, or replaced by another: later events would be lost. The error has an
// exit code and a hint.
func (j *Journal) Check() error {
	path := filepath.Join(j.dir, File)
	own, err := j.file.Stat()
	if err != nil {
		return fmt.Errorf("look at the journal: %w", err)
	}
	there, err := os.Stat(path)
	gone := errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.ESTALE)
	if gone || err == nil && !os.SameFile(own, there) {
		return launcher.RunDirError(j.dir, &fs.PathError{Op: "look for", Path: path, Err: errGone})
	}
	return nil
}

// errGone is the error for a run directory that has disappeared. It is a fs.ErrNotExist.
var errGone = gone{}

type gone struct{}

func (gone) Error() string { return "the run directory has disappeared" }

func (gone) Is(target error) bool { return target == fs.ErrNotExist }
