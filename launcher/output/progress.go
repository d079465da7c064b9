package output

import (
	"regexp"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/gpurun/gpurun/strategy"
)

// Activity is when ranks last gave a sign of life. The zero time says never.
type Activity struct {
	Output time.Time // the last byte on either stream
	Step   time.Time // the last line with a step's number other than the one before
	Raised time.Time // the last finding that ended a traceback
	Steps  int       // lines with a step's number
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
		all.Raised = later(all.Raised, a.Raised)
		all.Steps += a.Steps
		all.Longest = max(all.Longest, a.Longest)
	}
	return all
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// A rank is what is known about one rank's output.
type rank struct {
	global, local int
	step          *regexp.Regexp
	observe       func(line string) (strategy.ObservedSetting, bool)
	facts         *facts
	streams       [2]*stream // stdout, stderr

	mu        sync.Mutex
	activity  Activity // guarded by mu, as all below
	progress  strategy.Progress
	began     time.Time // when the first step was seen
	steppedIn string    // the stream that the last step was seen in
	logged    budget
	raised    budget
}

func (r *rank) spoke(now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.activity.Output = now
}

// stepped takes a line with a step's number. A line that repeats the number, such
// as a progress bar that is drawn again, is no sign of life.
func (r *rank) stepped(source string, now time.Time, n, total int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	a, p := &r.activity, &r.progress
	first := p.Steps == 0
	if first {
		p.First, r.began = n, now
	}
	if first || n != p.Last {
		if !first {
			a.Longest = max(a.Longest, now.Sub(a.Step))
			p.Longest, p.For = strategy.Seconds(a.Longest), strategy.Seconds(now.Sub(r.began))
		}
		a.Step = now
	}
	p.Last, p.Total = n, max(p.Total, total)
	p.Steps++
	a.Steps++
	r.steppedIn = source
}

// stepIn finds the number of a step in a line, and the number of all steps where the
// line says it, 0 where it does not.
func (r *rank) stepIn(line []byte) (n, total int, ok bool) {
	if r.step == nil {
		return 0, 0, false
	}
	m := r.step.FindSubmatchIndex(line)
	if m == nil {
		return 0, 0, false
	}
	step := max(r.step.SubexpIndex("step"), 1)
	n, err := numberAt(line, m, step)
	if err != nil {
		return 0, 0, false
	}
	if all := r.step.SubexpIndex("total"); all > 0 {
		total, _ = numberAt(line, m, all)
	} else if of := behindStep.FindSubmatch(line[m[2*step+1]:]); of != nil {
		total, _ = strconv.Atoi(string(of[1]))
	}
	return n, total, true
}

// behindStep is how a line says how many steps there are, right behind the step.
var behindStep = regexp.MustCompile(`^\s{0,2}(?:/|of)\s{0,2}(\d+)`)

func numberAt(line []byte, m []int, group int) (int, error) {
	if m[2*group] < 0 {
		return 0, strconv.ErrSyntax
	}
	return strconv.Atoi(string(line[m[2*group]:m[2*group+1]]))
}
