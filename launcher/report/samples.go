package report

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"io"
	"os"
	"slices"
	"time"

	"github.com/gpurun/gpurun/launcher/private"
	"github.com/gpurun/gpurun/model"
)

// Bounds of what is read of one such file: its bytes, the lines that are parsed, the last
// ones, which always are, a line's length, and the number of ranks and devices.
const (
	mostSampleBytes = 128 << 20
	mostSamples     = 8_000
	lastSamples     = 256
	longestSample   = 16 << 10
	mostSeries      = 256
)

// A Series are the samples of one rank and device, in the order of time.
type Series struct {
	Rank    int
	Device  string
	Samples []model.Sample
}

// A seriesKey identifies a series.
type seriesKey struct {
	rank   int
	device string
}

// only is the series of the one device that a rank names; nil for none, or several.
func only(all map[seriesKey]*Series, rank int) (one *Series) {
	for k, s := range all {
		if k.rank != rank || k.device == "" {
			continue
		}
		if one != nil {
			return nil
		}
		one = s
	}
	return one
}

// readSamples reads the samples of an attempt that ran between two times; none where there
// is no file. Of a long file it parses a part, spread evenly, and the end.
func readSamples(path string, from, to time.Time) []Series {
	f, err := private.OpenFile(path, os.O_RDONLY)
	if err != nil {
		return nil
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil
	}
	all := map[seriesKey]*Series{}
	for line := range someLines(io.LimitReader(f, mostSampleBytes), info.Size()) {
		s, ok := sampleIn(line, from, to)
		if !ok {
			continue
		}
		k := seriesKey{s.Rank, s.Device}
		if all[k] == nil {
			if len(all) == mostSeries {
				continue
			}
			all[k] = &Series{Rank: s.Rank, Device: s.Device}
		}
		all[k].Samples = append(all[k].Samples, s)
	}
	for k, s := range all { // before its first call a rank does not know its device
		if k.device == "" {
			if of := only(all, k.rank); of != nil {
				of.Samples = append(of.Samples, s.Samples...)
				delete(all, k)
			}
		}
	}
	var series []Series
	for _, s := range all {
		slices.SortStableFunc(s.Samples, func(a, b model.Sample) int { return a.Time.Compare(b.Time) })
		series = append(series, *s)
	}
	slices.SortStableFunc(series, func(a, b Series) int { return cmp.Or(a.Rank-b.Rank, cmp.Compare(a.Device, b.Device)) })
	return series
}

// someLines yields lines of a file: all if there are few, else the last ones, and a part of the others.
// Golden-ratio steps select this part, so that it includes every rank although ranks alternate. The number of
// lines is estimated from those read so far. It yields at most twice mostSamples lines.
func someLines(r io.Reader, size int64) func(yield func([]byte) bool) {
	return func(yield func([]byte) bool) {
		lines := bufio.NewReaderSize(r, 256<<10)
		const golden = 0x9e3779b97f4a7c15
		chosen, read, given := uint64(0), int64(0), 0
		var last [][]byte // the lines passed over since, of the last ones
		for n := int64(1); ; n++ {
			line, err := lines.ReadSlice('\n')
			long := errors.Is(err, bufio.ErrBufferFull)
			for read += int64(len(line)); errors.Is(err, bufio.ErrBufferFull); read += int64(len(line)) {
				line, err = lines.ReadSlice('\n')
			}
			if err != nil {
				break // a last line without an end is being written
			}
			share := uint64(1<<64 - 1)
			if count := size / max(read/n, 1); count > mostSamples {
				share = share / uint64(count) * mostSamples
			}
			switch chosen += golden; {
			case long || len(line) > longestSample:
			case chosen <= share && given < 2*mostSamples:
				if given++; !yield(line) {
					return
				}
			default:
				last = append(last[max(len(last)-lastSamples+1, 0):], bytes.Clone(line))
			}
		}
		for _, line := range last {
			if !yield(line) {
				return
			}
		}
	}
}

// mostHeld is more bytes than any device has: a larger figure is an error.
const mostHeld = 1 << 50

// sampleIn reads a line; false where it is no sample of that time. A figure that cannot be is
// not known.
func sampleIn(line []byte, from, to time.Time) (model.Sample, bool) {
	var s model.Sample
	if json.Unmarshal(line, &s) != nil || s.Rank < 0 || len(s.Device) > 64 {
		return s, false
	}
	const slack = time.Minute // clocks of two processes
	if s.Time.IsZero() || s.Time.Before(from.Add(-slack)) || s.Time.After(to.Add(slack)) {
		return s, false
	}
	for _, n := range []*int64{&s.Allocated, &s.Reserved, &s.Peak, &s.Allowed, &s.Used, &s.Capacity} {
		if *n < 0 || *n > mostHeld {
			*n = 0
		}
	}
	return s, true
}
