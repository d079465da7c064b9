package hook

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/gpurun/gpurun/strategy"
	"github.com/gpurun/gpurun/strategy/memory"
)

// Bounds for reading a snapshot: a job can write anything into its folder.
const (
	mostDigest = 256 << 10 // bytes; digest.py stays below a tenth of it
	mostPlaces = 32        // in each list
	mostSize   = 1 << 40   // bytes of an allocation, so that no sum of them overflows
	mostNames  = 4096      // files of a rank's folder that are looked at
)

// A digest is digest.py's summary of the allocator when memory ran out.
type digest struct {
	strategy.Snapshot
	Top   []heldPlace `json:"top"`
	Large []heldPlace `json:"large"` // blocks, and the request, that are a large part of all
}

// heldPlace is the memory allocated by one place in the code, or a single block.
type heldPlace struct {
	strategy.Allocation
	Each int64 `json:"each_bytes"` // of one block, 0 where they differ
	// Rounded is by how much at most the size was rounded up.
	Rounded   int64 `json:"rounded_bytes"`
	Attention bool  `json:"attention"` // some frame is about attention
}

// is reports whether it may be a tensor of so many bytes.
func (h heldPlace) is(bytes int64) bool { return bytes <= h.Bytes && h.Bytes-bytes <= h.Rounded }

// NewestSnapshot reads a snapshot that a rank's processes have left in its folder below the attempt's: the newest of
// the request that ended a process, or else the newest. It reports false where there is none; Missing is why one
// cannot be read. The measurement is the rank's, nil for none.
func NewestSnapshot(dir string, rank int, m *memory.Measurement) (newest strategy.Snapshot, found bool) {
	folder := rankFolder(dir, rank)
	for _, name := range newestFirst(folder) {
		s, err := readDigest(filepath.Join(folder, name), m)
		if err != nil {
			s = strategy.Snapshot{Missing: fmt.Sprintf("the digest of the allocator's snapshot cannot be read: %.200s", err)}
		}
		s.Rank, s.File = rank, ""
		whole := strings.TrimSuffix(name, ".json") + ".pickle"
		if info, err := os.Lstat(filepath.Join(folder, whole)); err == nil && info.Mode().IsRegular() && s.Reserved > 0 {
			s.File = filepath.Join(filepath.Base(folder), whole)
		}
		raised := m != nil && m.Failed != "" && m.Requested > 0
		if !raised || s.OfRequest(m.Requested) {
			return s, true
		}
		if !found {
			newest, found = s, true
		}
	}
	return newest, found
}

// newestFirst lists the digests in a folder.
func newestFirst(folder string) []string {
	times := map[string]time.Time{}
	for _, name := range snapshotFiles(folder, ".json") {
		if info, err := os.Lstat(filepath.Join(folder, name)); err == nil && info.Mode().IsRegular() {
			times[name] = info.ModTime()
		}
	}
	return slices.SortedStableFunc(maps.Keys(times), func(a, b string) int {
		return cmp.Or(times[b].Compare(times[a]), strings.Compare(a, b))
	})
}

func readDigest(path string, m *memory.Measurement) (strategy.Snapshot, error) {
	text, _, err := slurp(path)
	if err != nil {
		return strategy.Snapshot{}, err
	}
	if len(text) > mostDigest {
		return strategy.Snapshot{}, fmt.Errorf("more than %d bytes", mostDigest)
	}
	var d digest
	if err := json.Unmarshal(text, &d); err != nil {
		return strategy.Snapshot{}, err
	}
	if err := d.check(); err != nil {
		return strategy.Snapshot{}, err
	}
	s := d.Snapshot
	for _, h := range d.Top {
		// Where nothing else has named them, the model's logits are known by the size of each block.
		one := h
		one.Bytes = h.Each
		if known := shaped(one, m); h.What == "" && known.What == whatLogits {
			h.What, h.Shape, h.Dtype = known.What, known.Shape, known.Dtype
		}
		s.Top = append(s.Top, h.Allocation)
	}
	s.Giant = d.giant(m)
	return s, nil
}

// check refuses what digest.py cannot have written, and figures that could overflow.
func (d *digest) check() error {
	if len(d.Top) > mostPlaces || len(d.Large) > mostPlaces || len(d.Leaks) > mostPlaces {
		return fmt.Errorf("more than %d places", mostPlaces)
	}
	sizes := []int64{d.Reserved, d.Allocated, d.Free, d.Largest, d.Requested, d.Allowed, int64(d.From)}
	for _, h := range append(d.Top, d.Large...) {
		sizes = append(sizes, h.Bytes, h.Each, h.Rounded, int64(h.Count), int64(h.Line))
	}
	for _, a := range d.Leaks {
		sizes = append(sizes, a.Bytes, a.PerStep, int64(a.Count), int64(a.Line))
	}
	for _, n := range sizes {
		if n < 0 || n > mostSize {
			return fmt.Errorf("a size of %d", n)
		}
	}
	return nil
}

// RemoveSnapshots removes the snapshots of a rank that continued, or ended well.
func RemoveSnapshots(dir string, rank int) error {
	var failed error
	folder := rankFolder(dir, rank)
	for _, name := range append(snapshotFiles(folder, ".json"), snapshotFiles(folder, ".pickle")...) {
		if err := os.Remove(filepath.Join(folder, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			failed = errors.Join(failed, err)
		}
	}
	return failed
}

// snapshotFiles are those of a folder with such an end: snapshot-0.json, and
// snapshot-0-123.json of a process that the job started itself.
func snapshotFiles(folder, end string) []string {
	f, err := os.Open(folder)
	if err != nil {
		return nil
	}
	defer f.Close()
	all, _ := f.Readdirnames(mostNames) // what there is, if not all of it
	var found []string
	for _, name := range all {
		stem, ok := strings.CutSuffix(name, end)
		numbers, its := strings.CutPrefix(stem, "snapshot-")
		if ok && its && strings.Trim(numbers, "0123456789-") == "" {
			found = append(found, name)
		}
	}
	return found
}
