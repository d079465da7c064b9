package job

import (
	"archive/zip"
	"encoding/binary"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/gpurun/gpurun/launcher/errext"
)

var errIncomplete = errors.New("the checkpoint is not complete")

// lastWritten is when the newest file of a checkpoint was written, the zero time
// where it has none that can be seen. It opens no file.
func lastWritten(path string, until time.Time) time.Time {
	var newest time.Time
	_ = filepath.WalkDir(path, func(name string, entry fs.DirEntry, err error) error {
		if time.Now().After(until) {
			return fs.SkipAll
		}
		if err != nil || entry.IsDir() {
			return err // complete reports what cannot be read
		}
		if info, err := os.Stat(name); err == nil && newest.Before(info.ModTime()) {
			newest = info.ModTime()
		}
		return nil
	})
	return newest
}

// An opener opens the files of checkpoints.
type opener struct {
	open func(path string) (*os.File, error)
	// until is when it stops trying.
	until time.Time
}

// complete is nil for a checkpoint that is whole. One that is still being written,
// or was cut off, is errIncomplete.
func (o opener) complete(path string, needs []string) error {
	return errext.Recovered(func() error { return o.whole(path, needs) })
}

func (o opener) whole(path string, needs []string) error {
	files := 0
	err := filepath.WalkDir(path, func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if time.Now().After(o.until) {
			return ErrSlowSearch
		}
		if unfinished(entry.Name()) {
			return errIncomplete
		}
		if entry.IsDir() {
			return wholeFolder(name)
		}
		info, err := os.Stat(name)
		if err != nil {
			return err
		}
		files++
		if !info.Mode().IsRegular() {
			return nil // a pipe would block
		}
		return o.wholeFile(name, info.Size())
	})
	if err == nil {
		err = wholeTag(path, needs)
	}
	if err == nil && files == 0 {
		err = errIncomplete
	}
	return err
}

// unfinished recognises names that writers use until a file is whole; transformers 5 has
// checkpoint-is-incomplete.txt while it writes.
func unfinished(name string) bool {
	return strings.HasSuffix(name, ".tmp") || strings.HasSuffix(name, ".part") || strings.Contains(name, "incomplete")
}

// wholeFile refuses an empty file, and one whose format says that it was cut off.
func (o opener) wholeFile(path string, size int64) error {
	if size == 0 {
		return errIncomplete
	}
	f, err := o.open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	if filepath.Ext(path) == ".safetensors" {
		return wholeSafetensors(f, size)
	}
	head := make([]byte, 4)
	if n, _ := f.ReadAt(head, 0); n == 4 && string(head) == "PK\x03\x04" {
		return wholeArchive(f, size)
	}
	return nil
}

// directoryRead is how much of an archive's directory is read, in bytes: that of
// some 100,000 tensors.
const directoryRead = 8 << 20

// wholeArchive refuses a zip archive, as torch.save writes them since PyTorch 1.6,
// that lacks the directory at its end.
func wholeArchive(f io.ReaderAt, size int64) error {
	_, err := zip.NewReader(&capped{f, directoryRead}, size)
	switch {
	case errors.Is(err, errCapped): // its end was found, and much of the directory
		return nil
	case errors.Is(err, zip.ErrFormat), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, io.EOF):
		return errIncomplete
	}
	return err
}

var errCapped = errors.New("that is enough of it")

// capped reads so many bytes and no more.
type capped struct {
	r    io.ReaderAt
	left int
}

func (c *capped) ReadAt(p []byte, at int64) (int, error) {
	if c.left -= len(p); c.left < 0 {
		return 0, errCapped
	}
	return c.r.ReadAt(p, at)
}

// safetensorsHeader is the most that the format allows its header, in bytes.
const safetensorsHeader = 100_000_000

// wholeSafetensors refuses a safetensors file that is shorter than its header
// says: eight bytes with the header's length, the header, the tensors.
func wholeSafetensors(f io.Reader, size int64) error {
	var length uint64
	if binary.Read(f, binary.LittleEndian, &length) != nil || length > uint64(min(size, safetensorsHeader)) {
		return errIncomplete
	}
	header := make([]byte, length)
	if _, err := io.ReadFull(f, header); err != nil {
		return errIncomplete
	}
	var tensors map[string]struct {
		Offsets []int64 `json:"data_offsets"`
	}
	if json.Unmarshal(header, &tensors) != nil {
		return errIncomplete
	}
	end := int64(0)
	for _, tensor := range tensors {
		if len(tensor.Offsets) == 2 {
			end = max(end, tensor.Offsets[1])
		}
	}
	if size < 8+int64(length)+end {
		return errIncomplete
	}
	return nil
}
