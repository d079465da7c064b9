package cause

import (
	"slices"
	"strings"
	"sync"
)

// A pattern recognises a line of output by substrings, which are cheap on a long line;
// a regular expression is not.
type pattern struct {
	code    Code
	weight  Weight
	words   []string // in the line, in this order
	without []string // not in the line
	// recovery: the job reports that it skips, retries or reduces. The line is not a finding; it
	// makes the out-of-memory errors around it handled.
	recovery bool
	whole    bool // the only word is the whole line
	sure     bool // the words are a message wherever they are in an exception's
	phase    Phase
	device   string
}

func (p *pattern) matches(text string) bool {
	if p.whole {
		return strings.Trim(text, " *`") == p.words[0] // with the signs of bold text or code
	}
	rest := text
	for _, w := range p.words {
		i := strings.Index(rest, w)
		if i < 0 {
			return false
		}
		rest = rest[i+len(w):]
	}
	return !contains(text, p.without)
}

// raised is the pattern's weight in the line that ends a traceback: an exception is never only a
// warning, but may be another failure's symptom.
func (p *pattern) raised() Weight {
	switch {
	case p.weight != WeightWarning:
		return p.weight
	case p.code == Unknown || p.code == UserError || p.code == NCCLError:
		return WeightSymptom
	}
	return WeightCause
}

// reports reports whether the line is about the end of another process, and so no part of the message
// above it.
func (p *pattern) reports() bool {
	return p.weight == WeightSymptom && (p.code == UserError || p.code == Unknown || p.code == Preempted)
}

// classify returns the first pattern of the table that the line matches.
func classify(text string) *pattern {
	first := len(patterns)
	of := byTrigger()
	lines().each([]byte(text), func(word string) {
		for _, i := range of[word] {
			if i >= first {
				break
			}
			if patterns[i].matches(text) {
				first = i
				break
			}
		}
	})
	if first == len(patterns) {
		return nil
	}
	return &patterns[first]
}

// byTrigger lists the patterns of each trigger, in the order of the table.
var byTrigger = sync.OnceValue(func() map[string][]int {
	of := map[string][]int{}
	for i := range patterns {
		word := trigger(patterns[i].words)
		of[word] = append(of[word], i)
	}
	return of
})

func words(w ...string) []string { return w }

// patterns is the catalogue of lines. The first match wins, so a more exact pattern precedes a
// more general one.
var patterns = slices.Concat(
	recoveryPatterns, allocatorPatterns, cudaPatterns, sharedMemoryPatterns, hostPatterns, diskPatterns, devicePatterns,
	networkPatterns, stopPatterns, otherPatterns,
)

// recoveryPatterns match the messages of jobs that catch an out-of-memory error.
var recoveryPatterns = []pattern{
	// gpurun, about a step that was done again in place.
	{code: CUDAOOM, weight: WeightHandled, words: words("gpurun: rank ", " ran out of memory in ", " done again ")},
	{code: CUDAOOM, weight: WeightHandled, words: words("gpurun: ", "memory ran out in ", " done again in place "),
		without: words("  attempt ")},
	// Its summary names each attempt's end once more.
	{code: CUDAOOM, weight: WeightWarning, words: words("gpurun:   attempt ", "out of memory")},
	// Composer (MosaicML) with automatic microbatching, 0.8 on.
	{code: CUDAOOM, weight: WeightHandled, words: words("CUDA out of memory detected")},
	{code: CUDAOOM, weight: WeightHandled,
		words: words("CUDA out of memory or excessive memory allocation retries detected")},
	{recovery: true, words: words("icrobatch size decreased from")},
	{recovery: true, words: words("icrobatch size will be decreased from")},
	// Ultralytics, 8.4 on.
	{code: CUDAOOM, weight: WeightHandled, words: words("CUDA out of memory with batch=", "educing to batch=")},
	{recovery: true, words: words("icro_batch_size from", "to", "OOM")},
	// fairseq: trainer.py logs these around "Ran out of memory with exception".
	{recovery: true, words: words("attempting to recover from OOM")},
	{recovery: true, words: words("OOM in all workers, skipping update")},
	{recovery: true, words: words("ran out of memory", "retrying batch")},
	{recovery: true, words: words("ran out of memory", "skipping batch")},
	// Loops of users: "CUDA out of memory, skipping batch 12".
	{code: CUDAOOM, weight: WeightHandled, words: words("ut of memory", "kipping")},
	{code: CUDAOOM, weight: WeightHandled, words: words("OOM", "kipping batch")},
	{code: CUDAOOM, weight: WeightHandled, words: words("ut of memory", "etrying with")},
	{code: CUDAOOM, weight: WeightHandled, words: words("kipping batch", "ut of memory")},
	{recovery: true, words: words("kipping batch")},
	{recovery: true, words: words("kipping this batch")},
	{recovery: true, words: words("kipping step due to OOM")},
	{recovery: true, words: words("Ignoring this choice")}, // torch._inductor's autotuning
	{recovery: true, words: words("ecovered from OOM")},
	{recovery: true, words: words("etrying with a smaller batch")},
	{recovery: true, words: words("etrying with smaller batch")},
	{recovery: true, words: words("etrying with batch size")},
	{recovery: true, words: words("etrying with batch_size")},
	{recovery: true, words: words("educing batch size to")},
	{recovery: true, words: words("educing batch size from")},
	{recovery: true, words: words("educing batch_size to")},
	{recovery: true, words: words("educed batch size to")},
	// accelerate.utils.find_executable_batch_size.
	{recovery: true, words: words("ecreasing batch size to")},
	// Lightning's batch size finder, 1.x and 2.x.
	{recovery: true, words: words("Batch size", "failed, trying batch size")},
	// Ultralytics' AutoBatch, YOLOv5 and later.
	{code: CUDAOOM, weight: WeightHandled, words: words("ut of memory", "sing default batch-size")},
	{code: CUDAOOM, weight: WeightHandled, words: words("alling back to", "ut of memory")},
	{code: CUDAOOM, weight: WeightHandled, words: words("ut of memory", "alling back to")},
	{code: CUDAOOM, weight: WeightHandled, words: words("CUDA out of memory", "using CPU")},
	// detectron2.utils.memory.retry_if_cuda_oom.
	{code: CUDAOOM, weight: WeightHandled, words: words("Attempting to copy inputs of", "due to CUDA OOM")},
}
