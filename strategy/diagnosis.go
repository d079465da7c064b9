package strategy

import "github.com/gpurun/gpurun/strategy/cause"

// A Diagnosis says why an attempt ended, and which facts it rests on.
type Diagnosis struct {
	Cause cause.Code `json:"cause"`
	// Fatal is false where the attempt did not fail, or not for Cause.
	Fatal bool        `json:"fatal"`
	Phase cause.Phase `json:"phase"`
	// Late marks an out-of-memory error after many good steps: a long sample,
	// fragmentation or a leak rather than a plan that never fitted.
	Late bool `json:"late"`
	// Rank is where it began, -1 where that cannot be known.
	Rank int `json:"rank"`
	// Node is where that rank ran, "node 2 (n3)", where there are several nodes.
	Node string `json:"node,omitempty"`
	// Ranks are all ranks that show the same cause.
	Ranks []int `json:"ranks,omitempty"`
	// Device is "cuda:3", "cpu", or empty where nothing says it.
	Device string `json:"device,omitempty"`
	cause.Figures
	// Fragmented: what the allocator held in no tensor could have served the request.
	Fragmented bool `json:"fragmented"`
	// Impossible: a single request above what the device, or the cap, can hold.
	Impossible bool `json:"impossible,omitempty"`
	// Growth is memory use that rose step after step until the end: a leak.
	Growth *cause.Growth `json:"growth,omitempty"`
	// Again is after about how many steps a relaunch runs out again by Growth, 0
	// where that cannot be known.
	Again int `json:"again_steps,omitempty"`
	// Symptoms are other causes' marks that Cause explains.
	Symptoms []cause.Code `json:"symptoms"`
	// Because indexes the facts that the diagnosis rests on, the strongest first.
	Because []int `json:"because"`
	// Error is the last line of the failing rank's exception, where there is one.
	Error string `json:"error,omitempty"`
	// Place is where the job's own code raised it; nil where no traceback says so.
	Place *cause.SourceLine `json:"place,omitempty"`
	// ExitCode is the failing rank's exit code, 0 where none failed by itself.
	ExitCode int `json:"exit_code"`
	// Lost is the node whose loss ended the attempt; nil for another cause.
	Lost *Lost `json:"lost,omitempty"`
	// Hardware is what the driver told of a GPU, where that may have ended the attempt; nil
	// for nothing.
	Hardware *Hardware `json:"hardware,omitempty"`
	// Advice is what a person should do, one sentence, for causes that no rung answers.
	Advice string `json:"advice,omitempty"`
}

// OutOfMemory reports whether memory is what ended the attempt.
func (d Diagnosis) OutOfMemory() bool { return d.Fatal && d.Cause.OutOfMemory() }

// Facts are the facts that the diagnosis rests on, the strongest first.
func (d Diagnosis) Facts(e *Evidence) (facts []Fact) {
	for _, i := range d.Because {
		if i >= 0 && i < len(e.Facts) { // a journal may have been changed
			facts = append(facts, e.Facts[i])
		}
	}
	return facts
}
