package probe

import (
	"math"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/gpurun/gpurun/launcher/private"
)

// A Step is the latest optimizer step of a process.
type Step struct {
	N     int       // its number, from 1; the job's own where its framework knows one
	Total int       // the number of steps that the job has, 0 if unknown
	Loss  float64   // NaN if unknown
	At    time.Time // when it ended
}

// recordLength bounds the one record of the file steps, which steps.py writes in place.
const recordLength = 256

// readStep reads the record. It reports false where there is none, and for half of one
// and half of the next: its first number comes again at its end.
func readStep(path string) (s Step, ok bool) {
	f, err := private.OpenFile(path, os.O_RDONLY)
	if err != nil {
		return s, false
	}
	defer f.Close()
	var record [recordLength]byte
	n, _ := f.ReadAt(record[:], 0)
	return parseStep(string(record[:n]))
}

func parseStep(record string) (s Step, ok bool) {
	line, _, whole := strings.Cut(record, "\n")
	fields := strings.Fields(line)
	if !whole || len(fields) != 5 || fields[0] != fields[4] {
		return s, false
	}
	var err [4]error
	var at float64
	s.N, err[0] = strconv.Atoi(fields[0])
	s.Total, err[1] = strconv.Atoi(fields[1])
	s.Loss, err[2] = strconv.ParseFloat(fields[2], 64)
	at, err[3] = strconv.ParseFloat(fields[3], 64)
	for _, e := range err {
		if e != nil {
			return Step{}, false
		}
	}
	if s.N <= 0 || s.Total < 0 || !(at > 0 && at < 1<<40) {
		return Step{}, false
	}
	seconds, fraction := math.Modf(at)
	s.At = time.Unix(int64(seconds), int64(fraction*1e9)).UTC()
	return s, true
}
