package python

import (
	"bytes"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/gpurun/gpurun/launcher/commandline"
	"github.com/gpurun/gpurun/launcher/ranks"
)

const (
	// peers is how long the others may continue after one process has failed: they wait for
	// it, or have the better reason.
	peers = time.Second
	// killBound is how long processes may take to die.
	killBound = 3 * time.Second
	// drainBound is how long the output may take to be read, where a process still holds a pipe.
	drainBound = 10 * time.Second
)

// A ProcessResult is the output of a process, and how it ended.
type ProcessResult struct {
	Out, Err string
	Code     int // Unknown where it had to be ended
	Signal   int // 0 for none
}

// Start runs processes as gpurun runs ranks, until all have ended, one has failed, or
// ctx is done; none is left, nor what they started.
func Start(ctx context.Context, processes []ranks.Rank) ([]ProcessResult, error) {
	if err := ranks.CheckProcesses(); err != nil {
		return nil, err
	}
	streams := &outputPipes{}
	for i := range processes {
		processes[i].Rank, processes[i].LocalRank = i, i
		var err error
		if processes[i].Stdout, err = streams.open(); err == nil {
			processes[i].Stderr, err = streams.open()
		}
		if err != nil {
			streams.close()
			return nil, fmt.Errorf("open a pipe: %w", err)
		}
	}
	group, err := ranks.Start(ctx, processes, ranks.StartOptions{Marker: fmt.Sprintf("tryout-%d-%d", os.Getpid(), time.Now().UnixNano()), KillTimeout: killBound})
	streams.close()
	if err != nil {
		streams.wait()
		return nil, err
	}
	all := make([]ProcessResult, len(processes))
	await(ctx, group, all)
	group.Stop(0)
	texts := streams.wait()
	for i := range all {
		all[i].Out, all[i].Err = texts[2*i], texts[2*i+1]
	}
	if ctx.Err() != nil {
		return all, context.Cause(ctx)
	}
	return all, nil
}

// await records how the processes end.
func await(ctx context.Context, group *ranks.Group, all []ProcessResult) {
	for i := range all {
		all[i].Code = Unknown
	}
	var failed <-chan time.Time
	for {
		select {
		case f, more := <-group.Exits():
			if !more {
				return
			}
			exit := f.Exit()
			all[f.Rank].Code, all[f.Rank].Signal = exit.Code, exit.Signal
			if exit.Code != 0 && failed == nil {
				failed = time.After(peers)
			}
		case <-failed:
			return
		case <-ctx.Done():
			return
		}
	}
}

// outputPipes are the pipes that processes write to.
type outputPipes struct {
	reading sync.WaitGroup
	ours    []*os.File
	theirs  []*os.File
	texts   []*bytes.Buffer
}

// open makes a pipe, whose beginning is kept.
func (s *outputPipes) open() (*os.File, error) {
	r, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	text := &bytes.Buffer{}
	s.ours, s.theirs, s.texts = append(s.ours, r), append(s.theirs, w), append(s.texts, text)
	s.reading.Go(func() {
		_, err := io.CopyN(text, r, largest)
		if err == nil {
			_, _ = io.Copy(io.Discard, r) // more than an answer
		}
	})
	return w, nil
}

// close closes the processes' ends.
func (s *outputPipes) close() {
	for _, w := range s.theirs {
		w.Close()
	}
}

// wait returns what was written. A process that still holds a pipe cannot be killed, and is
// not waited for.
func (s *outputPipes) wait() []string {
	for _, r := range s.ours {
		_ = r.SetReadDeadline(time.Now().Add(drainBound))
	}
	s.reading.Wait()
	var texts []string
	for i, r := range s.ours {
		r.Close()
		texts = append(texts, s.texts[i].String())
	}
	return texts
}

// A Trial is Python that the job's interpreter runs, in one process for each of Words; each
// prints one line of JSON, and Ready to stderr before that.
type Trial struct {
	Text  string
	Words [][]string
	Env   commandline.Environ // on top of the job's; an empty value removes a variable
}

// Run starts the processes of a trial and decodes the answer of each, in the order of Words.
// The error of one that failed is its last line.
func Run[Answer any](ctx context.Context, by *Interpreter, t Trial) ([]Answer, error) {
	var processes []ranks.Rank
	for _, words := range t.Words {
		argv, dir, env := by.Command(t.Text, words...)
		for name, value := range t.Env {
			if env[name] = value; value == "" {
				delete(env, name)
			}
		}
		processes = append(processes, ranks.Rank{Argv: argv, Dir: dir, Env: env.Words()})
	}
	answers := make([]Answer, len(processes))
	all, err := Start(ctx, processes)
	if errors.Is(err, context.DeadlineExceeded) && slices.ContainsFunc(all, func(one ProcessResult) bool { return !strings.Contains(one.Err, Ready) }) {
		return answers, ErrBusy
	}
	for i, one := range all {
		if err != nil {
			break
		}
		if one.Code != Unknown {
			err = one.decode(&answers[i])
		}
	}
	if err == nil && slices.ContainsFunc(all, func(one ProcessResult) bool { return one.Code == Unknown }) {
		err = errors.New("it was ended before it answered") // because of another one, whose error is above
	}
	return answers, err
}

// RunOne is Run in one process.
func RunOne[Answer any](ctx context.Context, by *Interpreter, text string, words ...string) (Answer, error) {
	all, err := Run[Answer](ctx, by, Trial{Text: text, Words: [][]string{words}})
	return all[0], err
}

// Ready is the line that a process writes to stderr once its imports are done.
const Ready = "ready"

// ErrBusy is the error where the import took all the time, and nothing was tried.
var ErrBusy = errors.New("not tried: PyTorch was not imported in time, the machine is busy")

// Unknown is the code of a process that had to be ended.
const Unknown = -1

// noAnswer is a process that gave no answer.
type noAnswer struct {
	last string // the last line that it wrote, or how it ended
	all  string
}

func (f *noAnswer) Error() string { return f.last }

// decode reads the answer of a process: what a sitecustomize prints comes before.
func (s ProcessResult) decode(answer any) error {
	lines := strings.Split(strings.TrimSpace(s.Out), "\n")
	err := json.Unmarshal([]byte(lines[len(lines)-1]), answer)
	if s.Code == 0 && err == nil {
		return nil
	}
	f := &noAnswer{all: s.Out + "\n" + s.Err}
	switch words := lastLine(s.Err); {
	case s.Signal != 0:
		f.last = fmt.Sprintf("ended by signal %d", s.Signal)
	case words != "":
		f.last = words
	case s.Code == 0:
		f.last = "its output is not an answer"
	default:
		f.last = fmt.Sprintf("ended with code %d", s.Code)
	}
	return f
}

// lastLine returns the last line of a text that is not empty, shortened.
func lastLine(text string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return Shorten(strings.TrimSpace(lines[len(lines)-1]))
}

// longestWords is how much of another program's words is shown, in characters.
const longestWords = 240

// Shorten cuts another program's words for people.
func Shorten(text string) string {
	if runes := []rune(text); len(runes) > longestWords {
		return string(runes[:longestWords]) + " …"
	}
	return text
}

// WordsOf is all that a failed process wrote; empty for another error.
func WordsOf(err error) string {
	var f *noAnswer
	if errors.As(err, &f) {
		return f.all
	}
	return ""
}

//go:embed together.py
var togetherScript string

// Together is the output of one of several ranks that summed up what each has.
type Together struct {
	Sum   bool    `json:"sum"`   // the sum over all ranks was right
	Speed float64 `json:"speed"` // bytes a second over the slowest link, as NCCL's tests count them
}

// Meet has a rank on each device sum up over NCCL what each has.
func Meet(ctx context.Context, by *Interpreter, devices []int) (Together, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return Together{}, fmt.Errorf("find a free port: %w", err)
	}
	port := l.Addr().(*net.TCPAddr).Port
	l.Close()
	t := Trial{Text: togetherScript, Env: commandline.Environ{"NCCL_DEBUG": "WARN"}}
	for rank, device := range devices {
		t.Words = append(t.Words, strings.Fields(fmt.Sprintf("%d %d %d %d", rank, len(devices), port, device)))
	}
	all, err := Run[Together](ctx, by, t)
	if err != nil {
		return Together{}, err
	}
	for _, one := range all {
		if !one.Sum {
			return one, nil
		}
	}
	return all[0], nil
}

// Fixes for NCCL's messages that are not about a faulty GPU.
const (
	MoreShared = "docker: --shm-size=16g; Kubernetes: emptyDir medium: Memory at /dev/shm"
	MoreLocked = "ulimit -l unlimited, or docker run --ulimit memlock=-1"
	OtherBuild = "update the driver, or install a PyTorch for the one that is there"
)

var ncclFixes = []struct{ words, fix string }{
	{"/dev/shm", MoreShared}, {"No space left on device", MoreShared}, {"memlock", MoreLocked}, {"ibv_reg_mr", MoreLocked},
	{"no kernel image", OtherBuild}, {"driver version is insufficient", OtherBuild},
}

// NCCLFix returns the fix for the messages of failed ranks, empty if none is known.
func NCCLFix(words string) string {
	for _, f := range ncclFixes {
		if strings.Contains(words, f.words) {
			return f.fix
		}
	}
	return ""
}
