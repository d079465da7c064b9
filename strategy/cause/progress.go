package cause

import (
	"math"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// rates are the units of progress bars that count steps. Others count bytes,
// files and samples of a dataset.
var rates = []string{"it/s", "s/it", "step/s", "s/step", "steps/s", "batch/s", "s/batch", "iter/s", "s/iter"}

// loads are words of bars that do not show training.
var loads = []string{"Loading", "ownload", "Map", "okeniz", "Generating", "Filter", "etching", "pload"}

func contains(text string, any []string) bool {
	return slices.ContainsFunc(any, func(w string) bool { return strings.Contains(text, w) })
}

// step reads a line of progress in training: a progress bar, or a log line with a loss. Weight is
// the strength of the line as evidence that training continues: a bar redraws itself once when it
// closes, a loss is computed again.
func step(text string) (number, weight int, ok bool) {
	switch {
	case strings.IndexByte(text, '/') >= 0 && contains(text, rates):
		if contains(text, loads) {
			return 0, 0, false
		}
		n, ok := bar(text)
		return n, 1, ok
	case strings.Contains(text, "loss") || strings.Contains(text, "Loss"):
		n, ok := numberAfterAny(text, "iteration", "step", "Step", "iter", "Iter", "batch", "poch")
		return n, 2, ok
	}
	return 0, 0, false
}

// A move is the progress that a line shows: the number of the step and the weight of the line.
type move struct {
	number, weight int
	ok             bool // it shows any
}

// moves reads a line of progress as step does, and also lines that have a counter and a
// measurement, in any words: "[12/300] acc=0.41", "Epoch 003 | train 0.6667". Such a line has
// weight 1.
func moves(text string) move {
	if n, weight, ok := step(text); ok {
		return move{n, weight, true}
	}
	if len(text) > complaintLimit || !hasDecimal(text) || fails(text) || contains(text, loads) {
		return move{}
	}
	if n, ok := bar(text); ok {
		return move{n, 1, true}
	}
	n, ok := numberAfterAny(text, "poch", "tep", "teration", "Iter", "iter")
	if !ok {
		n, ok = leads(text)
	}
	return move{n, 1, ok}
}

// placeWords precede the number of a place, rather than a counter.
var placeWords = []string{"rank", "gpu", "cuda", "device", "node", "worker", "process", "pid", "line", "port",
	"version", "layer", "top"}

// leads reads the counter at the beginning of a line, after a word of any kind and before a
// separator: "it 0018 | nll 1.36", "Round 5: acc 0.81".
func leads(text string) (int, bool) {
	end := 0
	for end < len(text) && letter(text[end]) {
		end++
	}
	if end < 2 || end > 12 || slices.Contains(placeWords, strings.ToLower(text[:end])) {
		return 0, false
	}
	number, rest := leadingDigits(strings.TrimLeft(text[end:], " :=#[("), 12)
	rest = strings.TrimLeft(rest, " ")
	if rest == "" || strings.IndexByte("|,:;/])", rest[0]) < 0 {
		return 0, false
	}
	n, err := strconv.Atoi(number)
	return n, err == nil
}

// hasDecimal reports whether a line has a number with a decimal point after a space or a sign.
func hasDecimal(text string) bool {
	for i := 1; i+2 < len(text); i++ {
		if text[i+1] != '.' || !digits(text[i:i+1]) || !digits(text[i+2:i+3]) {
			continue
		}
		at := i
		for at > 0 && digits(text[at-1:at]) {
			at--
		}
		if at > 0 && strings.IndexByte(" \t=:([|,-", text[at-1]) >= 0 {
			return true
		}
	}
	return false
}

// afterBar returns the index of the text that follows tqdm's bar on the same line; 0: none.
func afterBar(text string) int {
	if strings.IndexByte(text, ']') < 0 {
		return 0
	}
	at := strings.Index(text, "it/s")
	if other := strings.Index(text, "s/it"); at < 0 || other >= 0 && other < at {
		at = other
	}
	if at < 0 {
		return 0
	}
	end := strings.IndexByte(text[at:], ']')
	if i := at + end + 1; end >= 0 && i < len(text) && text[i] != ' ' && text[i] != ',' {
		return i
	}
	return 0
}

// bar reads the position of tqdm's "45%|####  | 723/1602 [2:12:45<…".
func bar(text string) (int, bool) {
	for i := len(text) - 2; i > 0; i-- {
		if text[i] == '/' && digits(text[i+1:i+2]) && digits(text[i-1:i]) {
			n, err := strconv.Atoi(text[len(strings.TrimRight(text[:i], "0123456789")):i])
			return n, err == nil
		}
	}
	return 0, false
}

// numberAfter reads the whole number that follows a word within a few bytes of
// punctuation: "step 12", "step: 12", "'epoch': 0.31", "iteration      12/".
func numberAfter(text, word string) (int, bool) {
	i := strings.Index(text, word)
	if i < 0 {
		return 0, false
	}
	number, _ := leadingDigits(strings.TrimLeft(text[i+len(word):], "s'\" :=[#(-"), 12)
	v, err := strconv.Atoi(number)
	return v, err == nil
}

// numberAfterAny is numberAfter of the first word that has a number.
func numberAfterAny(text string, words ...string) (int, bool) {
	for _, w := range words {
		if n, ok := numberAfter(text, w); ok {
			return n, true
		}
	}
	return 0, false
}

// trainedIn and trainedAfter are gpurun's own lines about a run that trained, whatever came before.
const trainedIn, trainedAfter = "gpurun: trained in ", "gpurun: summary: trained after "

// endings are the messages by which training scripts and frameworks report their end.
var endings = []string{
	"raining complete", "raining is complete", "raining finished", "raining has finished", "inished training",
	"raining done",
	"ompleted training", "one training", "raining ended", "'train_runtime'", "\"train_runtime\"", "train_runtime  ",
	"`Trainer.fit` stopped: `max_", "ended successfully", "finished successfully", "completed successfully",
	trainedIn, trainedAfter, "uccessfully completed", "uccessfully finished", "exited with code 0",
	"finished with exit code 0", "epochs completed in ",
}

// durations are the messages about the training's time, which also appear after a failure: hooks
// and finally blocks write them.
var durations = []string{"otal training time", "raining time ", "raining took"}

// lastWordsOfScripts are whole lines that programs write as their last one, without decoration.
var lastWordsOfScripts = []string{"DONE", "Done", "done", "All done", "ALL DONE", "Finished", "FINISHED"}

var ends = sync.OnceValue(func() *prefilter { return newPrefilter(slices.Concat(endings, durations)) })

// endsWell reports whether a line reports that the training ended well. sure: no program writes it
// after a failure.
func endsWell(text string) (well, sure bool) {
	if len(text) > complaintLimit {
		return false, false
	}
	if slices.Contains(lastWordsOfScripts, strings.Trim(text, " \t=*-#!.")) {
		return true, false
	}
	well = ends().find([]byte(text)) != math.MaxInt && !strings.Contains(text, " not ") && !fails(text)
	return well, well && !contains(text, durations)
}

// progresses reports whether a line counts an epoch or a step of any kind.
func progresses(text string) bool {
	if len(text) > complaintLimit {
		return false
	}
	_, counts := numberAfterAny(text, "poch", "tep", "teration", "Iter", "iter")
	return counts && !fails(text)
}

// fails reports whether a line mentions a failure.
func fails(text string) bool {
	return contains(text, []string{"rror", "ailed", "ailure", "xception", "bort", "illed", "out of memory", "OOM",
		"srun:", "slurmstepd"})
}

// complaints are words of programs that stop with an error. They count only in the last line of
// the output of a process that ended with 1.
var complaints = []string{
	"error", "not found", "no such", "missing", "invalid", "fail", "cannot", "can't", "could not", "unable to", "must ",
	"does not", "doesn't", "is required", "are required", "unknown ", "unsupported", "not supported", "expected", "abort",
	"exiting",
	"refus", "mismatch", "denied", "not allowed", "not a ", "not an ",
}

// complaintLimit is the largest length of such a line.
const complaintLimit = 400

// complains reports whether a line reports an error.
func complains(text string) bool {
	text = strings.ToLower(strings.TrimSpace(text))
	if len(text) > complaintLimit || !strings.Contains(text, " ") {
		return false
	}
	if _, rest, ok := strings.Cut(text, "no "); ok && strings.Contains(rest, " found") {
		return true
	}
	if _, _, isStep := step(text); isStep {
		return false
	}
	return contains(text, complaints)
}

// complain reports the line as the last one of the process.
func (s *Scanner) complain(seg segment, line int) {
	s.seq++
	s.give(Finding{
		Code: UserError, Weight: WeightWarning, Remarks: []Remark{SaysComplaint}, Phase: NoPhase, Rank: seg.rank,
		Start: s.start.number, Stream: s.stream, Seq: s.seq, Line: max(1, line),
		Text: clip(strings.TrimSpace(seg.text), textLimit),
	})
}
