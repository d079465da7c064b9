package system

import (
	"errors"
	"io"
	"io/fs"
	"os"
)

// ListFolder returns at most so many entries of a folder, in no order. With an error it returns the entries read
// before.
func ListFolder(dir string, most int) ([]fs.DirEntry, error) {
	f, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	entries, err := f.ReadDir(most)
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return entries, err
}
