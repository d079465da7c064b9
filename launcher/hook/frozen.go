package hook

import (
	"bytes"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// frozenMark is the marker that PyInstaller's bootloader looks for in the last frozenTail bytes of a program.
const (
	frozenMark = "MEI\x0c\x0b\x0a\x0b\x0e"
	frozenTail = 64 << 10
)

// Frozen reports whether a program, as a command in a folder names it, was made by
// PyInstaller. Its Python reads no PYTHONPATH: the hook cannot work there, and would not remove
// its variables from the environment of the program's children.
func Frozen(program, dir string) bool {
	path := program
	if !strings.Contains(program, "/") {
		path, _ = exec.LookPath(program)
	} else if !filepath.IsAbs(program) {
		path = filepath.Join(dir, program)
	}
	f, err := os.Open(path)
	if err != nil {
		return false
	}
	defer f.Close()
	if _, err := f.Seek(-frozenTail, io.SeekEnd); err != nil { // it is shorter
		if _, err := f.Seek(0, io.SeekStart); err != nil {
			return false
		}
	}
	end, err := io.ReadAll(io.LimitReader(f, frozenTail))
	return err == nil && bytes.Contains(end, []byte(frozenMark))
}
