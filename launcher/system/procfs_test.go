package system

import (
	"errors"
	"io/fs"
	"os"
	"strconv"
	"testing"
)

func TestStatOfThisProcess(t *testing.T) {
	s, err := ReadStat(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	if s.Field(1) != strconv.Itoa(os.Getpid()) || s.Field(4) != strconv.Itoa(os.Getppid()) || s.Name() == "" {
		t.Errorf("%+v", s)
	}
	if s.Field(1000) != "" {
		t.Errorf("field 1000 is %q", s.Field(1000))
	}
	if _, err := ReadStat(1 << 30); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("of no process: %v", err)
	}
}

func TestStatusOfThisProcess(t *testing.T) {
	s, err := ReadStatus(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	if s["Pid"] != strconv.Itoa(os.Getpid()) || s["TracerPid"] == "" || ProcBytes(s["VmRSS"]) < 1<<20 {
		t.Errorf("%v", s)
	}
	if ProcBytes("12 kB") != 12<<10 || ProcBytes("") != 0 || ProcBytes("many") != 0 {
		t.Error("sizes are wrong")
	}
}
