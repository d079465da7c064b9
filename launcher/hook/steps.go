package hook

import (
	"github.com/gpurun/gpurun/launcher/system"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"
)

// A OptimizerStep is the latest optimizer step of a process.
type OptimizerStep struct {
	N     int        // its number, from 1; the job's own where its framework knows one
	Total int        // the number of steps that the job has, 0 if unknown
	Loss  float64    // NaN if unknown
	At    time.Time  // when it ended
	Held  HeldMemory // at its end, or since
	Phase string     // what the process does since: "train", "eval" or "save"
	// Data is how long the process lately waits for data in a step, and Forward how long its
	// forward passes take; 0 is unknown, or a process that is not one of several.
	Data, Forward time.Duration
}

// HeldMemory is the memory of a process, in bytes; a zero is not known.
type HeldMemory struct {
	// Device is PyTorch's number of the GPU that it trains on, -1 for the CPU.
	Device int
	// Allocated and Reserved are what PyTorch's allocator gives and holds, Peak the most that
	// it ever gave. On the CPU Allocated and Peak are the process's own memory.
	Allocated, Reserved, Peak int64
	// Retries is how often the allocator gave its cache back to find room.
	Retries int64
}

// Bounds of a record: a job can write anything there.
const (
	mostBytes   = 1 << 50
	mostDevices = 1 << 10
	mostOwn     = 24 * time.Hour
)

// phases are what a process does between two steps.
var phases = []string{"train", "eval", "save"}

// recordLength bounds the one record of the file steps, which steps.py writes in place.
const recordLength = 256

// readStep reads the record. It reports false where there is none, and for half of one
// and half of the next: its first number comes again at its end.
func readStep(path string) (s OptimizerStep, ok bool) {
	f, err := system.OpenFile(path, os.O_RDONLY)
	if err != nil {
		return s, false
	}
	defer f.Close()
	var record [recordLength]byte
	n, _ := f.ReadAt(record[:], 0)
	return parseStep(string(record[:n]))
}

func parseStep(record string) (s OptimizerStep, ok bool) {
	line, _, whole := strings.Cut(record, "\n")
	fields := strings.Fields(line)
	if !whole || len(fields) != 13 || fields[0] != fields[12] || !slices.Contains(phases, fields[9]) {
		return s, false
	}
	var figures [7]int64 // but the loss and the time
	for i, k := range []int{0, 1, 4, 5, 6, 7, 8} {
		n, err := strconv.ParseInt(fields[k], 10, 64)
		if err != nil || n < 0 && k != 4 || n >= mostBytes {
			return s, false
		}
		figures[i] = n
	}
	loss, err := strconv.ParseFloat(fields[2], 64)
	at, failed := strconv.ParseFloat(fields[3], 64)
	if err != nil || failed != nil || figures[0] == 0 || !(at > 0 && at < 1<<40) || figures[2] < -1 ||
		figures[2] >= mostDevices {
		return s, false
	}
	seconds, fraction := math.Modf(at)
	return OptimizerStep{
		N: int(figures[0]), Total: int(figures[1]), Loss: loss, At: time.Unix(int64(seconds), int64(fraction*1e9)).UTC(),
		Phase: fields[9], Held: HeldMemory{Device: int(figures[2]), Allocated: figures[3], Reserved: figures[4],
			Peak: figures[5], Retries: figures[6]},
		Data: parseOwn(fields[10]), Forward: parseOwn(fields[11]),
	}, true
}

// parseOwn reads a part of a step, in seconds; 0 for anything else.
func parseOwn(field string) time.Duration {
	seconds, err := strconv.ParseFloat(field, 64)
	if err != nil || !(seconds >= 0 && seconds < mostOwn.Seconds()) {
		return 0
	}
	return time.Duration(seconds * float64(time.Second))
}
