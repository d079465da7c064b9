package ranks

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"
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
	if err != nil {
		t.Fatal(err)
	}
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
