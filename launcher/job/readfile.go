package job

import (
	"fmt"
	"io"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"
)

// The largest files that are read whole, in bytes. What is larger was named by
// mistake.
const (
	largestJob    = 256 << 10 // a train.toml
	largestRecipe = 1 << 20
	largestFile   = 64 << 20 // a configuration file of the job
)

// readFile returns the content of a regular file of at most most bytes. A pipe or a
// device, which may never end, is refused before a byte is read: a pipe's could not
// be read a second time by the job.
func readFile(path string, most int64) ([]byte, error) {
	refuse := func(err error) ([]byte, error) {
		return nil, &fs.PathError{Op: "read", Path: path, Err: err}
	}
	// Without O_NONBLOCK, to open a pipe waits for somebody who writes to it.
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	switch mode := info.Mode(); {
	case mode.IsDir():
		return refuse(unix.EISDIR)
	case mode&fs.ModeNamedPipe != 0:
		return refuse(fmt.Errorf("it is a pipe, not a regular file"))
	case !mode.IsRegular():
		return refuse(fmt.Errorf("it is a device, not a regular file"))
	case info.Size() > most:
		return refuse(tooLarge(most))
	}
	text, err := io.ReadAll(io.LimitReader(f, most+1))
	if err != nil {
		return nil, err
	}
	if int64(len(text)) > most { // it has grown, or its size is not told, as in /proc
		return refuse(tooLarge(most))
	}
	return text, nil
}

// tooLarge is the error for a file of more than so many bytes.
type tooLarge int64

func (most tooLarge) Error() string {
	if most < 1<<20 {
		return fmt.Sprintf("it is too large: more than %d KiB", most>>10)
	}
	return fmt.Sprintf("it is too large: more than %d MiB", most>>20)
}

// ReadSmall is the content of a regular file of at most most bytes.
func ReadSmall(path string, most int64) ([]byte, error) { return readFile(path, most) }
