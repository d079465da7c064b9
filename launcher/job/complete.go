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
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gpurun/gpurun/launcher/errext"
	"github.com/gpurun/gpurun/launcher/lazy"
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

var (
	// shardName is the name of one of several files of the same weights, as
	// transformers and diffusers write them: model-00001-of-00003.safetensors.
	shardName = lazy.Regexp(`^(.+-)(\d{5})-of-(\d{5})(\..+)$`)
	// deepSpeedState is a file that DeepSpeed writes into a tag's folder.
	deepSpeedState = lazy.Regexp(`^(bf16_|fp16_)?zero_pp_rank_\d+_.*_states\.pt$|^mp_rank_\d+_.*_states\.pt$`)
)

// wholeFolder refuses a folder without what its writer adds last: the .metadata
// of torch.distributed.checkpoint, DeepSpeed's file latest, the Trainer's
// trainer_state.json, and the rest of a set of shards.
func wholeFolder(dir string) error {
	names, err := entryNames(dir)
	if err != nil {
		return err
	}
	has := func(name string) bool { return slices.Contains(names, name) }
	distributed := slices.ContainsFunc(names, func(name string) bool { return strings.HasSuffix(name, ".distcp") })
	switch {
	case distributed && !has(".metadata"):
		return errIncomplete
	case has("training_args.bin") && !has("trainer_state.json") && strings.HasPrefix(filepath.Base(dir), "checkpoint-"):
		return errIncomplete
	}
	for _, name := range names {
		if err := wholeShards(names, name); err != nil {
			return err
		}
		if strings.HasSuffix(name, ".index.json") {
			if err := wholeIndex(filepath.Join(dir, name), names); err != nil {
				return err
			}
		}
	}
	for _, name := range names {
		if isTag(filepath.Join(dir, name)) {
			if _, err := latestTag(dir); err != nil {
				return err
			}
		}
	}
	return nil
}

// wholeTag refuses a checkpoint that lacks what it needs, and a tag of DeepSpeed that the file
// latest does not name yet.
func wholeTag(path string, needs []string) error {
	if info, err := os.Stat(path); err != nil || !info.IsDir() {
		return err
	}
	for _, need := range needs {
		if matches, err := filepath.Glob(filepath.Join(path, need)); err != nil || len(matches) == 0 {
			return errIncomplete
		}
	}
	if !isTag(path) {
		return nil
	}
	latest, err := latestTag(filepath.Dir(path))
	if err != nil {
		return err
	}
	if base := filepath.Base(path); base != latest && compareNumbers(numbersIn(base), numbersIn(latest)) >= 0 {
		return errIncomplete
	}
	return nil
}

// isTag reports whether a folder holds what DeepSpeed writes under one tag.
func isTag(dir string) bool {
	if info, err := os.Stat(dir); err != nil || !info.IsDir() {
		return false // nor may a pipe be opened
	}
	names, err := entryNames(dir)
	return err == nil && slices.ContainsFunc(names, deepSpeedState().MatchString)
}

// latestTag is the tag that DeepSpeed names as complete, once all ranks have
// written theirs.
func latestTag(dir string) (string, error) {
	text, err := os.ReadFile(filepath.Join(dir, "latest"))
	if errors.Is(err, fs.ErrNotExist) {
		return "", errIncomplete
	}
	if err != nil {
		return "", err
	}
	tag := strings.TrimSpace(string(text))
	if tag == "" || !isTag(filepath.Join(dir, tag)) {
		return "", errIncomplete
	}
	return tag, nil
}

// wholeShards refuses one of several files whose others are not all there.
func wholeShards(names []string, name string) error {
	m := shardName().FindStringSubmatch(name)
	if m == nil {
		return nil
	}
	total, err := strconv.Atoi(m[3])
	if err != nil {
		return nil
	}
	there := 0
	for _, other := range names {
		if o := shardName().FindStringSubmatch(other); o != nil && o[1] == m[1] && o[3] == m[3] && o[4] == m[4] {
			there++
		}
	}
	if there < total {
		return errIncomplete
	}
	return nil
}

// wholeIndex refuses an index of weights that names a file which is not there.
func wholeIndex(path string, names []string) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	var index struct {
		Files map[string]string `json:"weight_map"`
	}
	if json.Unmarshal(text, &index) != nil {
		return errIncomplete
	}
	for _, file := range index.Files {
		if !slices.Contains(names, file) {
			return errIncomplete
		}
	}
	return nil
}

// entryNames lists a folder.
func entryNames(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	names := make([]string, len(entries))
	for i, entry := range entries {
		names[i] = entry.Name()
	}
	return names, err
}
