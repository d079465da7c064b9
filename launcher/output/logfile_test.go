package output

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"pgregory.net/rapid"
)

var cutPattern = regexp.MustCompile(`\n\[gpurun: +(\d+) bytes cut out here\]\n`)

func TestACappedFileKeepsItsHeadAndItsTail(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	rapid.Check(t, func(t *rapid.T) {
		file, err := os.Create(path)
		if err != nil {
			t.Fatal(err)
		}
		defer file.Close()
		most := rapid.IntRange(leastBytes, 4*leastBytes).Draw(t, "most")
		c := &cappedFile{file: file, most: int64(most)}
		var all []byte
		for i, n := range rapid.SliceOfN(rapid.IntRange(0, 3*leastBytes), 1, 12).Draw(t, "writes") {
			line := fmt.Appendf(nil, "write %d %s\n", i, strings.Repeat("-", n%97))
			p := bytes.Repeat(line, n/len(line)+1)[:n]
			if wrote, err := c.Write(p); wrote != n || err != nil {
				t.Fatalf("Write returns %d, %v", wrote, err)
			}
			all = append(all, p...)
		}
		checkCapped(t, path, all, most)
	})
}

// checkCapped checks that a file is the whole of all, or its head and its tail
// around one mark that counts what is missing.
func checkCapped(t *rapid.T, path string, all []byte, most int) {
	got, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if len(got) > most {
		t.Fatalf("the file has %d bytes, its cap is %d", len(got), most)
	}
	if len(all) <= most {
		if !bytes.Equal(got, all) {
			t.Fatal("a file below its cap is not what was written")
		}
		return
	}
	marks := cutPattern.FindAllSubmatchIndex(got, -1)
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
	if len(head) < most/2 || len(tail) < most/8 {
		t.Fatalf("head %d and tail %d bytes are kept of %d", len(head), len(tail), most)
	}
}

func TestALongLogIsCapped(t *testing.T) {
	o := open(t, 1, Options{MaxBytes: 1 << 20})
	out, _ := o.Files(0)
	write(t, out, "the first line\n")
	flood(t, out, 5<<10)
	write(t, out, "the last line\n")
	wait(t, o)
	got := logOf(t, o, 0, "stdout")
	if len(got) > 1<<20 || !strings.HasPrefix(got, "the first line\nxxx") || !strings.HasSuffix(got, "xxx\nthe last line\n") {
		t.Errorf("the log has %d bytes, and starts with %.40q", len(got), got)
	}
	if n := len(cutPattern.FindAllString(got, -1)); n != 1 {
		t.Errorf("the log has %d marks", n)
	}
}

func TestALogTellsWhatADiskDidNotTake(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	var told []string
	l, err := openLog(path, DefaultMaxBytes, func(s string) { told = append(told, s) })
	if err != nil {
		t.Fatal(err)
	}
	l.put([]byte("before"))
	l.dropped.Add(17) // As put does while the queue is full.
	if err := l.close(time.Now().Add(logClose)); err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(path)
	if want := "before\n[gpurun: 17 bytes could not be written here]\n"; string(got) != want || err != nil {
		t.Errorf("the log is %q, %v", got, err)
	}
	if len(told) > 0 {
		t.Errorf("a person is told %q", told)
	}
}

func TestADiskThatHangsIsNamed(t *testing.T) {
	l := &logFile{path: "/scratch/log", queue: newQueue(logQueue, logPatience), done: make(chan struct{})}
	err := l.close(time.Now())
	if err == nil || err.Error() != "write /scratch/log: the file system does not answer" {
		t.Errorf("close returns %v", err)
	}
}

func TestALogGoesOnWhenADiskHasRoomAgain(t *testing.T) {
	full, err := os.OpenFile("/dev/full", os.O_RDWR, 0)
	if err != nil {
		t.Skipf("this system has no /dev/full: %v", err)
	}
	defer full.Close()
	path := filepath.Join(t.TempDir(), "log")
	file, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	l := &logFile{file: &cappedFile{file: full, most: leastBytes}}
	lost, err := l.write(0, []byte("lost\n"))
	if lost != 5 || !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("write returns %d, %v", lost, err)
	}
	lost, err = l.write(lost, []byte("lost too\n"))
	if lost != 14 || !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("write returns %d, %v", lost, err)
	}
	l.file.file = file
	if lost, err = l.write(lost, []byte("kept\n")); lost != 0 || err != nil {
		t.Errorf("write returns %d, %v", lost, err)
	}
	l.file.undo(len("kept\n"))
	if _, err := l.file.Write([]byte("end\n")); err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(path)
	if want := "\n[gpurun: 14 bytes could not be written here]\nend\n"; string(got) != want || err != nil {
		t.Errorf("the log is %q, %v", got, err)
	}
}
