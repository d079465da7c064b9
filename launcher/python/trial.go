package python

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"

	"github.com/gpurun/gpurun/launcher/commandline"
	"github.com/gpurun/gpurun/launcher/ranks"
)

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
	all, err := ranks.RunBeside(ctx, processes)
	if errors.Is(err, context.DeadlineExceeded) && slices.ContainsFunc(all,
		func(one ranks.ProcessResult) bool { return !strings.Contains(one.Err, Ready) }) {
		return answers, ErrBusy
	}
	for i, one := range all {
		if err != nil {
			break
		}
		if one.Code != ranks.Unknown {
			err = decode(one, &answers[i])
		}
	}
	if err == nil && slices.ContainsFunc(all, func(one ranks.ProcessResult) bool { return one.Code == ranks.Unknown }) {
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

// noAnswer is a process that gave no answer.
type noAnswer struct {
	last string // the last line that it wrote, or how it ended
	all  string
}

func (f *noAnswer) Error() string { return f.last }

// decode reads the answer of a process: what a sitecustomize prints comes before.
func decode(s ranks.ProcessResult, answer any) error {
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
