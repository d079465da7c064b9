package ranks

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
	"pgregory.net/rapid"

	"github.com/gpurun/gpurun/test/testenv"
)

var cutPattern = regexp.MustCompile(`\n\[gpurun: +(\d+) bytes cut out here\]\n`)

func TestALongLogIsCapped(t *testing.T) {
	o := open(t, 1, OutputOptions{MaxBytes: 1 << 20})
	out, _ := o.Files(0)
	writeOutput(t, out, "the first line\n")
	flood(t, out, 5<<10)
	writeOutput(t, out, "the last line\n")
	wait(t, o)
	got := logOf(t, o, 0, "stdout")
	if len(got) > 1<<20 || !strings.HasPrefix(got, "the first line\nxxx") || !strings.HasSuffix(got, "xxx\nthe last line\n") {
		t.Errorf("the log has %d bytes, and starts with %.40q", len(got), got)
	}
	if n := len(cutPattern.FindAllString(got, -1)); n != 1 {
		t.Errorf("the log has %d marks", n)
	}
}

func TestLogReportsLinesLostToAFullDisk(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	var told []string
	l, err := openLog(path, DefaultMaxBytes, func(s string) { told = append(told, s) })
	testenv.Check(t, err)
	l.put([]byte("before"))
	l.dropped.Add(17) // As put does while the queue is full.
	testenv.Check(t, l.close(time.Now().Add(logClose)))
	got, err := os.ReadFile(path)
	if want := "before\n[gpurun: 17 bytes could not be written here]\n"; string(got) != want || err != nil {
		t.Errorf("the log is %q, %v", got, err)
	}
	if len(told) > 0 {
		t.Errorf("a person is told %q", told)
	}
}

func TestADiskThatHangsIsNamed(t *testing.T) {
	l := &logFile{path: "/scratch/log", queue: newQueue(logQueue, logPatience)}
	err := l.close(time.Now())
	if err == nil || err.Error() != "write /scratch/log: the file system does not answer" {
		t.Errorf("close returns %v", err)
	}
}

// A disk is a file as it is.
type disk struct{ *os.File }

func (d disk) Undo(n int) {
	if at, err := d.Seek(-int64(n), io.SeekEnd); err == nil {
		_ = d.Truncate(at)
	}
}

func TestLogContinuesWhenDiskHasSpaceAgain(t *testing.T) {
	full, err := os.OpenFile("/dev/full", os.O_RDWR, 0)
	if err != nil {
		t.Skipf("this system has no /dev/full: %v", err)
	}
	defer full.Close()
	path := filepath.Join(t.TempDir(), "log")
	file, err := os.Create(path)
	testenv.Check(t, err)
	defer file.Close()
	l := &logFile{file: disk{full}}
	lost, err := l.write(0, []byte("lost\n"))
	if lost != 5 || !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("write returns %d, %v", lost, err)
	}
	lost, err = l.write(lost, []byte("lost too\n"))
	if lost != 14 || !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("write returns %d, %v", lost, err)
	}
	l.file = disk{file}
	if lost, err = l.write(lost, []byte("kept\n")); lost != 0 || err != nil {
		t.Errorf("write returns %d, %v", lost, err)
	}
	l.file.Undo(len("kept\n"))
	if _, err := l.file.Write([]byte("end\n")); err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(path)
	if want := "\n[gpurun: 14 bytes could not be written here]\nend\n"; string(got) != want || err != nil {
		t.Errorf("the log is %q, %v", got, err)
	}
}

var cutLogPattern = regexp.MustCompile(`\n\[gpurun: +(\d+) bytes cut out here\]\n`)

func logPath(t testing.TB) string { return filepath.Join(t.TempDir(), "stdout.log") }

// draw is some output of a rank, in writes.
func draw(t *rapid.T) (writes [][]byte) {
	for i, n := range rapid.SliceOfN(rapid.IntRange(0, 3*LeastLog), 1, 12).Draw(t, "writes") {
		line := fmt.Appendf(nil, "write %d %s\n", i, strings.Repeat("-", n%97))
		writes = append(writes, bytes.Repeat(line, n/len(line)+1)[:n])
	}
	return writes
}

// read is all that a log has at this moment.
func read(t testenv.T, path string) []byte {
	t.Helper()
	r, err := OpenLog(path)
	testenv.Check(t, err)
	defer r.Close()
	text, err := io.ReadAll(r)
	testenv.Check(t, err)
	return text
}

// check wants the whole of all, or its head and its tail around one mark that counts what
// is missing.
func check(t *rapid.T, got, all []byte, most int) {
	if len(got) > most {
		t.Fatalf("the log has %d bytes, its cap is %d", len(got), most)
	}
	if len(all) <= most*3/4-int(markLength) && !bytes.Equal(got, all) {
		t.Fatalf("a log of %d bytes below its cap %d is not what was written", len(all), most)
	}
	if bytes.Equal(got, all) {
		return
	}
	marks := cutLogPattern.FindAllSubmatchIndex(got, -1)
	if len(marks) != 1 {
		t.Fatalf("there are %d marks", len(marks))
	}
	head, tail := got[:marks[0][0]], got[marks[0][1]:]
	cut, err := strconv.Atoi(string(got[marks[0][2]:marks[0][3]]))
	if err != nil || len(head)+cut+len(tail) != len(all) {
		t.Fatalf("%d + %d cut + %d bytes, want %d (%v)", len(head), cut, len(tail), len(all), err)
	}
	if !bytes.HasPrefix(all, head) || !bytes.HasSuffix(all, tail) {
		t.Fatal("what is kept is not the head and the tail")
	}
	if len(head) < most/6 || len(tail) < most/3 {
		t.Fatalf("head %d and tail %d bytes are kept of %d", len(head), len(tail), most)
	}
}

// A log keeps its head and its tail, while it is written and once it is one file, and takes
// no more of the disk than its cap.
func TestALogKeepsItsHeadAndItsTail(t *testing.T) {
	path := logPath(t)
	rapid.Check(t, func(t *rapid.T) {
		most := rapid.IntRange(LeastLog, 4*LeastLog).Draw(t, "most")
		w, err := CreateLog(path, int64(most))
		testenv.Check(t, err)
		var all []byte
		for _, p := range draw(t) {
			if n, err := w.Write(p); n != len(p) || err != nil {
				t.Fatalf("Write returns %d, %v", n, err)
			}
			all = append(all, p...)
			check(t, read(t, path), all, most)
		}
		testenv.Check(t, w.Close())
		if left, err := filepath.Glob(filepath.Dir(path) + "/*"); err != nil || len(left) != 1 {
			t.Fatalf("%v, %v are left", left, err)
		}
		whole, err := os.ReadFile(path)
		testenv.Check(t, err)
		check(t, whole, all, most)
		check(t, read(t, path), all, most)
	})
}

// Who reads a log while it grows reads each byte once, in order, or how many were cut out
// before it came to them, also where the log becomes one file meanwhile.
func TestALogIsReadWhileItGrows(t *testing.T) {
	path := logPath(t)
	rapid.Check(t, func(t *rapid.T) {
		w, err := CreateLog(path, LeastLog)
		testenv.Check(t, err)
		r, err := OpenLog(path)
		testenv.Check(t, err)
		defer r.Close()
		var all, got []byte
		some := func(n int) {
			text, err := io.ReadAll(io.LimitReader(r, int64(n)))
			testenv.Check(t, err)
			got = append(got, text...)
		}
		for _, p := range draw(t) {
			if _, err := w.Write(p); err != nil {
				t.Fatal(err)
			}
			all = append(all, p...)
			some(rapid.IntRange(0, 2*LeastLog).Draw(t, "reads"))
		}
		testenv.Check(t, w.Close())
		some(1 << 30)
		for marks := cutLogPattern.FindSubmatchIndex(got); marks != nil; marks = cutLogPattern.FindSubmatchIndex(got) {
			cut, err := strconv.Atoi(string(got[marks[2]:marks[3]]))
			if err != nil || !bytes.HasPrefix(all, got[:marks[0]]) || marks[0]+cut > len(all) {
				t.Fatalf("%d bytes, then %d cut of %d: %v", marks[0], cut, len(all), err)
			}
			got, all = got[marks[1]:], all[marks[0]+cut:]
		}
		if !bytes.Equal(got, all) {
			t.Fatalf("read %d bytes at the end, want %d", len(got), len(all))
		}
	})
}

// A kill -9 at any moment leaves a log that can be read: lines in order, once each, with
// one cut at most.
func TestAKillLeavesALog(t *testing.T) {
	for i := range 12 {
		path := logPath(t)
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), writesVariable+"="+path)
		testenv.Check(t, cmd.Start())
		for { // any moment after it has begun
			if info, err := os.Stat(path); err == nil && info.Size() > 0 {
				break
			}
			time.Sleep(time.Millisecond)
		}
		time.Sleep(time.Duration(i) * 3 * time.Millisecond)
		testenv.Check(t, cmd.Process.Kill())
		_ = cmd.Wait() // it was killed
		if fault := inOrder(string(read(t, path))); fault != "" {
			t.Errorf("kill %d: %s", i, fault)
		}
	}
}

// inOrder says what is wrong with a log of numbered lines.
func inOrder(text string) string {
	want, cuts := 0, 0
	for line := range strings.Lines(text) {
		var n int
		switch _, err := fmt.Sscanf(line, "line %06d\n", &n); {
		case err == nil && (n == want || cuts == 1 && n > want):
			want = n + 1
			cuts *= 2
		case line == "\n", cutLogPattern.MatchString("\n" + line):
			cuts++
			if line == "\n" {
				cuts--
			}
		case !strings.HasSuffix(line, "\n"): // the last one
		default:
			return fmt.Sprintf("%q where line %d was expected", line, want)
		}
	}
	if want == 0 && len(text) > 0 {
		return "no line is there"
	}
	return ""
}

// Where the one file cannot be made, the parts are read as one, and where a kill came
// before they were removed, they count once.
func TestPartsThatStay(t *testing.T) {
	path := logPath(t)
	w, err := CreateLog(path, LeastLog)
	testenv.Check(t, err)
	for i := range 2000 {
		fmt.Fprintf(w, "line %06d\n", i)
	}
	before := read(t, path)
	kept := map[string][]byte{}
	for _, p := range w.tails {
		if kept[p.path], err = os.ReadFile(p.path); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.join(time.Time{}); !errors.Is(err, errTooSlow) {
		t.Errorf("in no time: %v", err)
	}
	if got := read(t, path); !bytes.Equal(got, before) {
		t.Errorf("the parts have %d bytes, want %d", len(got), len(before))
	}
	testenv.Check(t, w.Close())
	for name, text := range kept {
		testenv.Check(t, os.WriteFile(name, text, 0o600))
	}
	if got := read(t, path); !bytes.Equal(got, before) {
		t.Errorf("beside parts that are left over it has %d bytes, want %d", len(got), len(before))
	}
}

// While the parts become one file, that has no name which a kill could leave; what one
// left anyway goes when the log is created again, and when it is joined.
func TestAKillWhileALogIsJoined(t *testing.T) {
	path := logPath(t)
	left := filepath.Join(filepath.Dir(path), ".stdout.log.joined")
	leave := func() {
		testenv.Check(t, os.WriteFile(left, []byte("left"), 0o600))
	}
	leave()
	w, err := CreateLog(path, LeastLog)
	testenv.Check(t, err)
	if _, err := os.Lstat(left); err == nil {
		t.Error("it stays when the log is made anew")
	}
	fmt.Fprint(w, strings.Repeat("a line\n", LeastLog))
	before := read(t, path)
	f, err := openJoined(path)
	testenv.Check(t, err)
	nameless, err := os.OpenFile(filepath.Dir(path), unix.O_TMPFILE|os.O_RDWR, 0o600)
	if _, there := os.Lstat(left); err == nil && there == nil {
		t.Error("a name is there from the beginning")
	}
	nameless.Close() // the file system may have none
	f.Close()
	leave()
	if f, err = os.Open(left); err != nil {
		t.Fatal(err)
	}
	if err := nameJoined(f, path); err != nil {
		t.Errorf("where it has a name from the beginning: %v", err)
	}
	f.Close()
	testenv.Check(t, w.Close())
	if files, err := os.ReadDir(filepath.Dir(path)); err != nil || len(files) != 1 || !bytes.Equal(read(t, path), before) {
		t.Errorf("%d files are left, %v", len(files), err)
	}
}

// A run that continues removes what a kill left in its earlier attempts, and follows no link.
func TestSweep(t *testing.T) {
	run, elsewhere := t.TempDir(), t.TempDir()
	left := map[string]bool{
		"attempt-0/rank0/.stdout.log.joined": false, "attempt-1/rank12/.stderr.log.joined": false,
		"attempt-0/rank0/stdout.log": true, "attempt-0/rank0/.mine.joined": true, "data/rank0/.stdout.log.joined": true,
	}
	for name := range left {
		testenv.Check(t, os.MkdirAll(filepath.Dir(filepath.Join(run, name)), 0o755))
		testenv.Check(t, os.WriteFile(filepath.Join(run, name), nil, 0o600))
	}
	theirs := filepath.Join(elsewhere, ".stdout.log.joined")
	if err := errors.Join(os.WriteFile(theirs, nil, 0o600), os.Symlink(elsewhere, filepath.Join(run, "attempt-0", "rank1"))); err != nil {
		t.Fatal(err)
	}
	SweepLogs(run)
	for name, want := range left {
		if _, err := os.Lstat(filepath.Join(run, name)); (err == nil) != want {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := os.Lstat(theirs); err != nil {
		t.Error(err)
	}
}

// What a job puts beside its log is neither followed nor waited for.
func TestFilesThatAJobPutsThere(t *testing.T) {
	path := logPath(t)
	testenv.Check(t, os.WriteFile(path, []byte("said\n"), 0o600))
	testenv.Check(t, syscall.Mkfifo(tailOf(path, 5, 5).path, 0o600))
	testenv.Check(t, os.Symlink("/etc/passwd", tailOf(path, 5, 6).path))
	testenv.Check(t, os.WriteFile(path+".tail-x", []byte("no"), 0o600))
	if got := read(t, path); string(got) != "said\n" {
		t.Errorf("read %q", got)
	}
	testenv.Check(t, os.Remove(path))
	testenv.Check(t, os.Symlink("/etc/passwd", path))
	if r, err := OpenLog(path); err == nil {
		r.Close()
		t.Error("a link was followed")
	}
}

// A disk that is full costs what was written then, and nothing of before and after.
func TestAFullDisk(t *testing.T) {
	full, err := os.OpenFile("/dev/full", os.O_RDWR, 0)
	if err != nil {
		t.Skipf("this system has no /dev/full: %v", err)
	}
	defer full.Close()
	path := logPath(t)
	w, err := CreateLog(path, LeastLog)
	testenv.Check(t, err)
	fmt.Fprint(w, "before\n")
	own := w.file
	w.file = full
	if n, err := w.Write([]byte("lost\n")); n != 0 || !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("Write returns %d, %v", n, err)
	}
	w.file = own
	fmt.Fprint(w, "half")
	w.Undo(len("half"))
	fmt.Fprint(w, "after\n")
	testenv.Check(t, w.Close())
	if got := read(t, path); string(got) != "before\nafter\n" {
		t.Errorf("read %q", got)
	}
}

// Ranks of all nodes are found, whichever node started them; other folders are not.
func TestFolders(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"rank0", "rank1", "node-1/rank2", "node-1/rank3", "node-2/rank5", "node-2/rank1", "node-02/rank7", "rank08", "rank-1", "other"} {
		testenv.Check(t, os.MkdirAll(filepath.Join(dir, name), 0o700))
	}
	for link, to := range map[string]string{"rank4": "rank0", "node-3": "node-1"} {
		testenv.Check(t, os.Symlink(to, filepath.Join(dir, link)))
	}
	want := map[int]string{0: "rank0", 1: "rank1", 2: "node-1/rank2", 3: "node-1/rank3", 5: "node-2/rank5"}
	got := LogFolders(dir)
	for rank, path := range want {
		want[rank] = filepath.Join(dir, path)
		if one := LogFolder(dir, rank); one != want[rank] {
			t.Errorf("rank %d: %s, want %s", rank, one, want[rank])
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if one := LogFolder(dir, 4); one != filepath.Join(dir, "rank4") {
		t.Errorf("a rank that is not there: %s", one)
	}
	if none := LogFolders(filepath.Join(dir, "nowhere")); len(none) != 0 {
		t.Errorf("of no attempt: %v", none)
	}
}
