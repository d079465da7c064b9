package test

import (
	"debug/elf"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/gpurun/gpurun/test/testenv"
)

const (
	largestBinary = 25_000_000 // bytes, without the tables of symbols
	// A package may take slowestInit of a start of gpurun, all together may take slowestStart.
	slowestInit, slowestStart = 1.0, 5.0 // ms
	// These do not depend on the machine's speed: 300 KiB of tables take 0.1 ms.
	mostBytes, mostAllocs = 1 << 20, 5_000
)

// TestBinaryIsSmall: what the kernel maps of the file is all that a stripped one has.
func TestBinaryIsSmall(t *testing.T) {
	f, err := elf.Open(build(t))
	testenv.Check(t, err)
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
		cmd := exec.Command(gpurun, "version")
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

const mostMemory = 20 << 10 // KiB of the supervisor, and as much of both guard processes

// TestProcessesAreSmall measures gpurun while a rank runs, with the pages that its processes share divided among them.
func TestProcessesAreSmall(t *testing.T) {
	cmd := exec.CommandContext(t.Context(), build(t), "--run-dir", filepath.Join(t.TempDir(), "run"), "sh", "-c", "echo $PPID; read forever")
	hold, err := cmd.StdinPipe()
	testenv.Check(t, err)
	out, err := cmd.StdoutPipe()
	testenv.Check(t, err)
	testenv.Check(t, cmd.Start())
	var inner int
	if _, err := fmt.Fscan(out, &inner); err != nil {
		t.Fatal(err)
	}
	outer := parent(t, inner)
	if up := parent(t, outer); up != cmd.Process.Pid {
		t.Errorf("process %d is above the guards, want %d", up, cmd.Process.Pid)
	}
	supervisor, guards := memory(t, cmd.Process.Pid), memory(t, inner)+memory(t, outer)
	t.Logf("the supervisor has %d KiB, both guards have %d KiB", supervisor, guards)
	if supervisor > mostMemory || guards > mostMemory {
		t.Errorf("the supervisor has %d KiB, both guards have %d KiB, want at most %d each", supervisor, guards, mostMemory)
	}
	hold.Close()
	if err := cmd.Wait(); err == nil {
		t.Error("read did not fail at the end of its input")
	}
}

const mostFlooded = 64 << 10 // KiB of the largest process, while 8 ranks write as fast as they can

// TestFloodTakesLittleMemory measures gpurun while it copies the output of 8 ranks to the console and to files.
func TestFloodTakesLittleMemory(t *testing.T) {
	cmd := exec.CommandContext(t.Context(), build(t), "--run-dir", filepath.Join(t.TempDir(), "run"), "--tee=3", "--nproc-per-node=8", "--no-python",
		"sh", "-c", "yes \"$(printf %099d 0)\" | head -c 16000000")
	out, err := cmd.StdoutPipe()
	testenv.Check(t, err)
	testenv.Check(t, cmd.Start())
	shown, failed := io.Copy(io.Discard, out)
	if err := errors.Join(failed, cmd.Wait()); err != nil || shown == 0 {
		t.Fatalf("%d bytes, %v", shown, err)
	}
	most := cmd.ProcessState.SysUsage().(*syscall.Rusage).Maxrss
	t.Logf("%d KiB", most)
	if most > mostFlooded {
		t.Errorf("gpurun had %d KiB, want at most %d", most, mostFlooded)
	}
}

// Counts of system calls up to the execution of the first rank, since each may take milliseconds on a slow disk.
const (
	mostSyncs   = 1  // the start of the attempt in the journal
	mostCreated = 24 // for two ranks; status.json is written at any time
)

// TestLittleComesBeforeTheFirstRank: a rank waits for two guard processes, a few files and one write to the disk.
func TestLittleComesBeforeTheFirstRank(t *testing.T) {
	strace, err := exec.LookPath("strace")
	if err != nil {
		t.Skip("there is no strace")
	}
	python, dir := testenv.Python(t), t.TempDir()
	script, trace := filepath.Join(dir, "train.py"), filepath.Join(dir, "trace")
	testenv.Check(t, os.WriteFile(script, []byte("print('hello')\n"), 0o600))
	cmd := exec.CommandContext(t.Context(), strace, "-f", "-qq", "-s", "4096", "-o", trace, "-e", "trace=execve,fsync,fdatasync,sync_file_range,openat,mkdirat,symlinkat",
		build(t), "--run-dir", filepath.Join(dir, "run"), "--nproc-per-node=2", script)
	cmd.Env = append(os.Environ(), "PYTHON_EXEC="+python, "CUDA_VISIBLE_DEVICES=")
	if out, err := cmd.CombinedOutput(); err != nil {
		if strings.Contains(string(out), "Operation not permitted") {
			t.Skipf("strace may not trace here: %s", out)
		}
		t.Fatalf("%v\n%s", err, out)
	}
	text, err := os.ReadFile(trace)
	testenv.Check(t, err)
	before, _, found := strings.Cut(string(text), `"-u", `+strconv.Quote(script))
	at := strings.LastIndexByte(before, '\n')
	if !found || at < 0 {
		t.Fatalf("no rank is executed in\n%s", text)
	}
	before = before[:at]
	count := func(pattern string) int {
		return len(regexp.MustCompile("(?m)^.*"+pattern+".*$").FindAllString(before, -1))
	}
	syncs, execs := count(`sync(?:_file_range)?\(`), count(`execve\(`)
	created := count(`mkdirat\(.*= 0`) + count(`symlinkat\(`) + count(`openat\(.*`+regexp.QuoteMeta(dir)+`.*O_CREAT`)
	t.Logf("%d writes to the disk, %d programs, %d files and folders", syncs, execs, created)
	if syncs > mostSyncs || execs > 3 || created > mostCreated {
		t.Errorf("the first rank waits for %d writes to the disk, %d programs, %d files and folders; want at most %d, 3 and %d:\n%s", syncs, execs, created, mostSyncs, mostCreated, before)
	}
}

// parent returns the parent of a process.
func parent(t *testing.T, pid int) int {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	testenv.Check(t, err)
	fields := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
	up, err := strconv.Atoi(fields[1])
	testenv.Check(t, err)
	return up
}

var pssLine = regexp.MustCompile(`(?m)^Pss: +(\d+) kB$`)

// memory returns the memory of a process in KiB.
func memory(t *testing.T, pid int) int {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", pid))
	testenv.Check(t, err)
	m := pssLine.FindSubmatch(text)
	if m == nil {
		t.Fatalf("no Pss in\n%s", text)
	}
	kib, _ := strconv.Atoi(string(m[1]))
	return kib
}

// benchRuns are two runs of make bench with other ratios, of which the first keeps its own.
const benchRuns = `
import sys
sys.path.insert(0, "../.ci")
import bench
bench.KEPT, written = sys.argv[1:]
for keep, speed, memory, noise in ((True, 10.0, 5.0, 2.0), (False, 7.0, 6.0, 1.9)):
    bench.RATIOS = {"speed": [speed - 0.5, speed, speed + 0.5], "memory": [memory], "noise": [noise - 0.5, noise, noise + 0.5]}
    bench.RATIOS["wide"] = [1.0, 2.0, 3.0] if keep else [1.5]
    bench.RATIOS["wider"] = [2.0] if keep else [1.0, 1.5, 2.5]
    if not keep:
        bench.RATIOS["new"] = [1.0]
    bench.report(written, keep)
`

// TestBenchNamesWhatGotWorse: by more than the spread, and nothing else; only a run that is asked to keeps its ratios.
func TestBenchNamesWhatGotWorse(t *testing.T) {
	kept, written := filepath.Join(t.TempDir(), "kept.json"), filepath.Join(t.TempDir(), "bench.json")
	out, err := exec.Command("python3", "-B", "-c", benchRuns, kept, written).CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	var found []string
	for line := range strings.Lines(string(out)) {
		if strings.HasPrefix(line, "worse: ") {
			found = append(found, strings.TrimSpace(line))
		}
	}
	const want = "worse: speed: 10.00 (9.50 to 10.50) kept, 7.00 (6.50 to 7.50) now"
	if len(found) != 1 || found[0] != want {
		t.Errorf("%q, want %q", found, want)
	}
	for path, speed := range map[string]float64{kept: 10, written: 7} {
		text, err := os.ReadFile(path)
		testenv.Check(t, err)
		ratios := map[string]struct{ Ratio, Low, High float64 }{}
		testenv.Check(t, json.Unmarshal(text, &ratios))
		if ratios["speed"].Ratio != speed {
			t.Errorf("%s has %v", filepath.Base(path), ratios)
		}
	}
}

// shared is a folder that the tests share.
var shared string

func TestMain(m *testing.M) {
	tests := testenv.Isolate(m)
	shared = tests.Folder
	os.Exit(tests.Run())
}
