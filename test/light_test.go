package test

import (
	"debug/elf"
	"maps"
	"os"
	osexec "os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const (
	largestBinary = 20_000_000 // bytes, without the tables of symbols
	// A package may take slowestInit of a start of gpurun, all together may take slowestStart.
	slowestInit, slowestStart = 1.0, 5.0 // ms
	// These do not depend on the machine's speed: 300 KiB of tables take 0.1 ms.
	mostBytes, mostAllocs = 1 << 20, 5_000
)

// TestBinaryIsSmall: what the kernel maps of the file is all that a stripped one has.
func TestBinaryIsSmall(t *testing.T) {
	f, err := elf.Open(build(t))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var bytes uint64
	for _, segment := range f.Progs {
		if segment.Type == elf.PT_LOAD {
			bytes += segment.Filesz
		}
	}
	t.Logf("%d bytes", bytes)
	if bytes == 0 || bytes > largestBinary {
		t.Errorf("a stripped gpurun has %d bytes, want at most %d: find the largest packages with go tool nm -size -sort size", bytes, largestBinary)
	}
}

// An initialised is the cost of a package's variables and init functions at each start.
type initialised struct {
	ms            float64
	bytes, allocs int
}

var initLine = regexp.MustCompile(`(?m)^init (\S+) @\S+ ms, (\S+) ms clock, (\d+) bytes, (\d+) allocs$`)

// initialisations starts gpurun several times, and returns the least of each package's times.
func initialisations(t *testing.T, gpurun string) map[string]initialised {
	t.Helper()
	least := map[string]initialised{}
	for range 5 {
		cmd := osexec.Command(gpurun, "version")
		cmd.Env = append(os.Environ(), "GODEBUG=inittrace=1")
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		for _, m := range initLine.FindAllStringSubmatch(string(out), -1) {
			var now initialised
			now.ms, _ = strconv.ParseFloat(m[2], 64)
			now.bytes, _ = strconv.Atoi(m[3])
			now.allocs, _ = strconv.Atoi(m[4])
			if before, seen := least[m[1]]; seen {
				now.ms = min(now.ms, before.ms)
			}
			least[m[1]] = now
		}
	}
	if len(least) < 50 {
		t.Fatalf("%d packages are initialised: is the trace written in another form?", len(least))
	}
	return least
}

// TestStartsAreCheap: each verb and each guard process initialises all packages.
func TestStartsAreCheap(t *testing.T) {
	all := initialisations(t, build(t))
	var sum initialised
	for _, name := range slices.Sorted(maps.Keys(all)) {
		one := all[name]
		sum.ms, sum.bytes, sum.allocs = sum.ms+one.ms, sum.bytes+one.bytes, sum.allocs+one.allocs
		if standard := !strings.Contains(strings.Split(name, "/")[0], "."); !standard && one.ms > slowestInit {
			t.Errorf("%s takes %g ms of each start, want at most %g: initialise on first use", name, one.ms, slowestInit)
		}
	}
	t.Logf("%d packages: %.2f ms, %d bytes, %d allocations", len(all), sum.ms, sum.bytes, sum.allocs)
	if sum.ms > slowestStart || sum.bytes > mostBytes || sum.allocs > mostAllocs {
		t.Errorf("a start initialises for %.2f ms, with %d bytes in %d allocations; want at most %g, %d and %d", sum.ms, sum.bytes, sum.allocs, slowestStart, mostBytes, mostAllocs)
	}
}
