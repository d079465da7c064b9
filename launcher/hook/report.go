package hook

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/gpurun/gpurun/launcher/system"
	"github.com/gpurun/gpurun/strategy"
	"github.com/gpurun/gpurun/strategy/cause"
)

// largest bounds how much of a file is read; report.py writes less than a tenth of it.
const largest = 4 << 20

// A report is the content of probe.json, which report.py writes.
type report struct {
	Type      string `json:"type"` // module.Class, the class alone for built-in ones
	Message   string `json:"message"`
	Traceback string `json:"traceback"`
	// Frames is the traceback without the exception's words, and those of its reasons.
	Frames string `json:"frames"`
	// Chain has the exceptions that it was raised from, the nearest first.
	Chain  []raised   `json:"chain"`
	PID    int        `json:"pid"`
	Time   float64    `json:"time"` // seconds since 1970
	Memory []onDevice `json:"memory"`
	Began  float64    `json:"began"`  // when Python began to watch the process
	Masked bool       `json:"masked"` // by programs above it, whose exit code may hide its own
	Inner  bool       `json:"inner"`  // below a Python program of the job's own that one may hide
	// Trained: the process, or one that it started, trained a model.
	Trained bool `json:"trained"`
	// Asking is how many seconds the process may yet be asked before it ends; 0: it is not, or has answered.
	Asking float64 `json:"asking"`
	// Environ are variables that gpurun has set, as they were when the exception
	// was raised; empty where the job had removed them.
	Environ map[string]string `json:"environ"`
}

// raised is one exception that another one was raised from, or in the handling of.
type raised struct {
	Type     string `json:"type"`
	Message  string `json:"message"`
	Frames   string `json:"frames"`
	Explicit bool   `json:"explicit"` // raise ... from
	Caught   bool   `json:"caught"`   // by the frame that raised the other one
}

// onDevice has PyTorch's figures of one device, in bytes.
type onDevice struct {
	Device    int    `json:"device"`
	Current   bool   `json:"current"`
	Allocated int64  `json:"allocated"`
	Reserved  int64  `json:"reserved"`
	Free      *int64 `json:"free"` // nil where the driver did not answer
	Total     *int64 `json:"total"`
}

// read makes a fact of a rank's file. It reports false where there is none, or one
// that is not whole.
func read(path, name string, rank int) (strategy.Fact, bool) {
	text, written, err := slurp(path)
	if err != nil {
		return strategy.Fact{}, false
	}
	fact := strategy.Fact{Rank: rank, Source: "probe"}
	var finding cause.Finding
	var ok bool
	switch plain, _ := unnumbered(name); plain {
	case errorFile:
		fact.Source = "error.json"
		finding, fact.Time, ok = cause.ErrorFile(text)
		// The file has whole seconds, too coarse to order the ranks by.
		if off := written.Sub(fact.Time); off >= 0 && off < 2*time.Second {
			fact.Time = written
		}
	case probeFile:
		finding, fact.Time, ok = parse(text)
	}
	// What is written again replaces what was there.
	finding.Stream, finding.Seq = stream(name), 1
	_, finding.Beside = unnumbered(name)
	fact.Content = (*strategy.Finding)(&finding)
	return fact, ok
}

// stream is the name under which a file's findings are known: probe, probe-123, error.json.
func stream(name string) string {
	if name == errorFile {
		return name
	}
	return strings.TrimSuffix(name, ".json")
}

// processEnd is how a process ended whose exit code a program above it may hide; false for
// others.
func processEnd(path, name string, f strategy.Fact) (strategy.Fact, bool) {
	text, _, err := slurp(path)
	var r report
	if err != nil || json.Unmarshal(text, &r) != nil || !r.Masked && !r.Inner || r.PID <= 0 {
		return strategy.Fact{}, false
	}
	end := &strategy.ProcessEnd{PID: r.PID, Stream: stream(name), Began: unixTime(r.Began), At: unixTime(r.Time),
		Trained: r.Trained, Inner: r.Inner}
	if f.Finding() != nil {
		end.Failed = f.Finding().Code
	}
	return strategy.Fact{Rank: f.Rank, Source: "probe", Content: end}, true
}

// asking reads for how long a process that reported its error may yet be asked; false if it reported none.
func asking(path string) (bound strategy.Seconds, written time.Time, ok bool) {
	text, written, err := slurp(path)
	var r report
	if err != nil || json.Unmarshal(text, &r) != nil || r.Type == "" {
		return 0, written, false
	}
	return strategy.Seconds(min(max(r.Asking, 0), mostSeconds) * float64(time.Second)), written, true
}

func unixTime(seconds float64) time.Time {
	whole, fraction := math.Modf(seconds)
	return time.Unix(int64(whole), int64(fraction*1e9)).UTC()
}

// Environ returns the values of Install's variables when a rank raised the exception that
// ended it: a script, or a shell script around it, may have changed them. It is nil where the rank
// reported no exception. Dir is the attempt's folder.
func Environ(dir string, rank int) map[string]string {
	text, _, err := slurp(filepath.Join(rankFolder(dir, rank), probeFile))
	if err != nil {
		return nil
	}
	var r report
	if json.Unmarshal(text, &r) != nil {
		return nil
	}
	return r.Environ
}

// slurp reads a regular file and the time when it was written.
func slurp(path string) (text []byte, written time.Time, err error) {
	// A pipe that a job put there would block for ever, and a link lead to another file.
	f, err := system.OpenFile(path, os.O_RDONLY)
	if err != nil {
		return nil, time.Time{}, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, time.Time{}, err
	}
	text, err = io.ReadAll(io.LimitReader(f, largest))
	return text, info.ModTime(), err
}

// parse reads probe.json.
func parse(text []byte) (s cause.Finding, at time.Time, ok bool) {
	var r report
	if json.Unmarshal(text, &r) != nil || r.Type == "" {
		return s, at, false
	}
	at = unixTime(r.Time)
	s = cause.LastWord(r.exception())
	if s.Code == cause.CUDAOOM {
		r.complete(&s)
	}
	return s, at, true
}

// words is the exception as a traceback's last line names it.
func (r *report) words() string {
	if r.Message == "" {
		return r.Type
	}
	return r.Type + ": " + r.Message
}

// exception returns the raised exception, with its reasons.
func (r *report) exception() cause.Exception {
	if r.Frames == "" { // there was no memory left for the parts
		return cause.Recorded(r.words(), r.Traceback)
	}
	e := cause.Exception{Class: r.Type, Message: r.Message, Traceback: r.Frames}
	outer := &e
	for _, link := range r.Chain {
		outer.Inner = &cause.Exception{Class: link.Type, Message: link.Message, Traceback: link.Frames}
		outer.Explicit, outer.Caught = link.Explicit, link.Caught
		outer = outer.Inner
	}
	return e
}

// complete fills in the figures that the message does not give.
func (r *report) complete(s *cause.Finding) {
	for _, m := range r.Memory {
		device := fmt.Sprintf("cuda:%d", m.Device)
		if s.Device != device && !(s.Device == "" && m.Current) {
			continue
		}
		s.Device = device
		unallocated := max(m.Reserved-m.Allocated, 0)
		f := &s.Figures
		f.Capacity = cmp.Or(f.Capacity, m.Total)
		f.Free = cmp.Or(f.Free, m.Free)
		f.Allocated = cmp.Or(f.Allocated, &m.Allocated)
		f.ReservedUnallocated = cmp.Or(f.ReservedUnallocated, &unallocated)
		return
	}
}
