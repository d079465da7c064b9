package ranks

import (
	"io"
	"math"
	"regexp"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/gpurun/gpurun/launcher/lazy"
	"github.com/gpurun/gpurun/strategy"
)

// Activity is when ranks last gave a sign of life; a zero time means never.
type Activity struct {
	Output time.Time // the last byte on either stream
	Step   time.Time // the last line with a step's number other than the one before
	Steps  int       // lines with a step's number other than the one before
	// Longest is the longest time between two steps. What came before the first
	// step, such as loading and compiling, does not count.
	Longest time.Duration
}

// Activity joins the activity of the given ranks, or of all ranks on this node:
// the newest times, the longest step, the sum of the steps. Any goroutine may
// call it at any time.
func (o *Output) Activity(ranks ...int) Activity {
	var all Activity
	for _, r := range o.ranks {
		if len(ranks) > 0 && !slices.Contains(ranks, r.global) {
			continue
		}
		r.mu.Lock()
		a := r.activity
		r.mu.Unlock()
		all.Output = later(all.Output, a.Output)
		all.Step = later(all.Step, a.Step)
		all.Steps += a.Steps
		all.Longest = max(all.Longest, a.Longest)
	}
	return all
}

// Progress is the progress of each rank on this node that has shown a step. Any goroutine may
// call it at any time.
func (o *Output) Progress() []strategy.Fact {
	var all []strategy.Fact
	for _, r := range o.ranks {
		r.mu.Lock()
		f, ok := r.stepsNow()
		r.mu.Unlock()
		if ok {
			all = append(all, f)
		}
	}
	return all
}

// Shown is the latest step in a rank's output, 0 for none, the number of all steps, and the
// loss. Lines may count other steps than the process.
type Shown struct {
	Step, Total int
	Loss        *float64
}

// Shown is the progress in the output of a rank on this node. Any goroutine may call it at any
// time.
func (o *Output) Shown(global int) (s Shown) {
	for _, r := range o.ranks {
		if r.global == global {
			r.mu.Lock()
			s = r.shown
			s.Loss = r.progress.Loss
			r.mu.Unlock()
		}
	}
	return s
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// A rank is the output of one rank.
type rank struct {
	global, local int
	step          *regexp.Regexp
	observe       func(line string) (strategy.ObservedSetting, bool)
	facts         *facts
	streams       [2]*stream // stdout, stderr

	mu        sync.Mutex
	activity  Activity // guarded by mu, as all below
	progress  strategy.Progress
	shown     Shown         // but the loss
	began     time.Time     // when the first step was seen
	steppedIn string        // the stream that the last step was seen in
	ordinary  time.Duration // the longest step without the latest one
	repeated  bool          // the step that runs now is done again in place
	logged    budget
	raised    budget
}

func (r *rank) spoke(now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.activity.Output = now
}

// stepped records the number of a step. A repeated number, such as that of a progress bar that
// is drawn again, is no sign of life.
func (r *rank) stepped(source string, now time.Time, n, total int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if source != inProcess {
		r.shown.Step, r.shown.Total = n, max(r.shown.Total, total)
	}
	if (r.steppedIn == inProcess) != (source == inProcess) && r.steppedIn != "" {
		return // lines and the process may count different steps: the first source counts
	}
	a, p := &r.activity, &r.progress
	p.Total, r.steppedIn = max(p.Total, total), source
	seen := 1
	switch {
	case p.Steps == 0:
		p.First, r.began = n, now
	case n == p.Last:
		return // a process reports its last step again at its end
	default:
		r.ordinary = a.Longest
		if !r.repeated {
			a.Longest = max(a.Longest, now.Sub(a.Step))
		}
		r.repeated = false
		p.Longest, p.For = strategy.Seconds(a.Longest), strategy.Seconds(now.Sub(r.began))
		if source == inProcess { // which does not report each step
			seen = max(n-p.Last, 1)
		}
	}
	a.Step, p.Last = now, n
	p.Steps += seen
	a.Steps += seen
}

// inProcess is the source of steps that a rank's own process counts.
const inProcess = "probe"

// Stepped records the number of optimizer steps of a rank's process. It counts where the rank's
// lines show no steps.
func (o *Output) Stepped(global, n int, at time.Time) {
	for _, r := range o.ranks {
		if r.global == global {
			r.stepped(inProcess, at, n, 0)
		}
	}
}

// Repeated records that a rank's process has done a step again in place: its length is that of no
// ordinary step. It may be the step that ended last, for the report comes later than the repeat.
func (o *Output) Repeated(global int) {
	for _, r := range o.ranks {
		if r.global == global {
			r.mu.Lock()
			r.activity.Longest, r.repeated = r.ordinary, true
			r.progress.Longest = strategy.Seconds(r.ordinary)
			r.mu.Unlock()
		}
	}
}

// stepIn finds the number of a step in a line, and the number of all steps, 0 where the line
// has none.
func (r *rank) stepIn(line []byte) (n, total int, ok bool) {
	if r.step == nil {
		return 0, 0, false
	}
	m := r.step.FindSubmatchIndex(line)
	if m == nil {
		return 0, 0, false
	}
	group := stepPattern(r.step)
	n, err := numberAt(line, m, group.Step)
	if err != nil {
		return 0, 0, false
	}
	if group.Loss > 0 {
		r.setLoss(line, m[2*group.Loss:2*group.Loss+2])
	}
	if group.Total > 0 {
		total, _ = numberAt(line, m, group.Total)
	} else if of := behindStep().FindSubmatch(line[m[2*group.Step+1]:]); of != nil {
		total, _ = strconv.Atoi(string(of[1]))
	}
	return n, total, true
}

// setLoss records the loss in a line with a step.
func (r *rank) setLoss(line []byte, at []int) {
	if at[0] < 0 {
		return
	}
	if loss, err := strconv.ParseFloat(string(line[at[0]:at[1]]), 64); err == nil && !math.IsNaN(loss) &&
		!math.IsInf(loss, 0) {
		r.mu.Lock()
		r.progress.Loss = &loss
		r.mu.Unlock()
	}
}

func stepPattern(e *regexp.Regexp) strategy.StepPattern {
	pattern, _ := strategy.StepPatternOf(e.SubexpNames())
	return pattern
}

// behindStep matches the number of all steps behind a step.
var behindStep = lazy.Regexp(`^\s{0,2}(?:/|of)\s{0,2}(\d+)`)

func numberAt(line []byte, m []int, group int) (int, error) {
	if m[2*group] < 0 {
		return 0, strconv.ErrSyntax
	}
	return strconv.Atoi(string(line[m[2*group]:m[2*group+1]]))
}

const (
	messagesQueue    = 8 << 20         // bytes that wait for a reader; more are lost
	messagesPatience = time.Second     // how long a reader that has stopped holds gpurun up
	messagesClose    = 2 * time.Second // without a written piece, at the end
)

// Messages is the writer for gpurun's own messages: decisions, notices, summary. Write returns
// when its bytes are written, so that all that is written to one terminal keeps its order; but
// a terminal that is stopped, or a pipe without a reader, holds gpurun up for a second at most.
// Then the messages wait, and the run continues.
//
// Any goroutine may write.
type Messages struct{ queue *queue }

// NewMessages writes to w until Close.
func NewMessages(w io.Writer) *Messages {
	q := newQueue(messagesQueue, messagesPatience)
	go func() {
		defer close(q.done)
		dead := false // closed, or a disk that is full
		q.each(func() {}, func(p []byte) {
			_, err := q.writePieces(w, p, func() bool { return dead })
			dead = dead || err != nil
		})
	}()
	return &Messages{q}
}

// Write writes p, or leaves it to be written. It never fails: the journal has everything, too.
func (w *Messages) Write(p []byte) (int, error) {
	if len(p) > 0 && w.queue.put(len(p), func(buf []byte) []byte { return append(buf, p...) }) {
		w.queue.awaitWritten()
	}
	return len(p), nil
}

// Close waits until everything is written. A reader that has stopped is left behind, with the
// goroutine that waits for it.
func (w *Messages) Close() { w.queue.end(messagesClose, time.Time{}) }
