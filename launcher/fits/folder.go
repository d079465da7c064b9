package fits

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"github.com/gpurun/gpurun/launcher/private"
)

// ErrNowhere means that the user has no state directory.
var ErrNowhere = errors.New("neither XDG_STATE_HOME nor HOME names a folder")

// Folder is where fits are kept, by the variables of gpurun's own environment:
// $XDG_STATE_HOME/gpurun/fits, else ~/.local/state/gpurun/fits, as the XDG Base Directory
// Specification has it, by which a relative path counts as none.
func Folder(variable func(name string) string) (string, error) {
	if state := variable("XDG_STATE_HOME"); filepath.IsAbs(state) {
		return filepath.Join(state, "gpurun", "fits"), nil
	}
	if home := variable("HOME"); filepath.IsAbs(home) {
		return filepath.Join(home, ".local", "state", "gpurun", "fits"), nil
	}
	return "", ErrNowhere
}

// Name is the file's name for a job, made of the words that tell it from others.
func Name(words ...string) string {
	h := sha256.New()
	for _, w := range words {
		fmt.Fprintf(h, "%d:%s", len(w), w) // a hash takes every write
	}
	return hex.EncodeToString(h.Sum(nil)[:16]) + ".json"
}

// Refused says why a file or folder is not used: somebody else could have written it.
type Refused struct{ Path, Why string }

func (e *Refused) Error() string { return fmt.Sprintf("%s is not used: %s", e.Path, e.Why) }

// ownedOnly refuses what is not the caller's, or what others may write to.
func ownedOnly(path string, info fs.FileInfo) error {
	const groupAndOthers = 0o022
	if stat, ok := info.Sys().(*syscall.Stat_t); ok && int64(stat.Uid) != int64(os.Geteuid()) {
		return &Refused{path, fmt.Sprintf("it belongs to another user (uid %d)", stat.Uid)}
	}
	if mode := info.Mode().Perm(); mode&groupAndOthers != 0 {
		return &Refused{path, fmt.Sprintf("others can write to it (mode %#o)", mode)}
	}
	return nil
}

// checkFolder refuses a folder that others could put a file into.
func checkFolder(dir string) error {
	info, err := os.Stat(dir)
	if err != nil {
		return err
	}
	if !info.IsDir() {
		return &Refused{dir, "it is not a folder"}
	}
	return ownedOnly(dir, info)
}

// makeFolder makes the folder of the store for its owner alone.
func makeFolder(dir string) error {
	if err := private.MkdirAll(dir); err != nil {
		return fmt.Errorf("make the folder of what is remembered: %w", err)
	}
	return checkFolder(dir)
}
