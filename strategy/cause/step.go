package cause

import (
	"strconv"
	"strings"
)

// rates are the units of progress bars that count steps. Others count bytes,
// files and samples of a dataset.
var rates = []string{"it/s", "s/it", "step/s", "s/step", "steps/s", "batch/s", "s/batch", "iter/s", "s/iter"}

func contains(text string, any []string) bool {
	for _, w := range any {
		if strings.Contains(text, w) {
			return true
		}
	}
	return false
}

// step reads a line that tells of progress in training: a progress bar, or a log
// line with a loss. Weight is how much the line proves that training goes on: a
// bar redraws itself once when it closes, a loss is computed anew.
func step(text string) (number, weight int, ok bool) {
	switch {
	case contains(text, rates):
		for _, other := range []string{"Loading", "ownload", "Map", "okeniz", "Generating", "Filter", "etching", "pload"} {
			if strings.Contains(text, other) {
				return 0, 0, false
			}
		}
		n, ok := bar(text)
		return n, 1, ok
	case strings.Contains(text, "loss") || strings.Contains(text, "Loss"):
		for _, mark := range []string{"iteration", "step", "Step", "iter", "Iter", "batch", "poch"} {
			if n, ok := numberAfter(text, mark); ok {
				return n, 2, true
			}
		}
	}
	return 0, 0, false
}

// bar reads the position of tqdm's "45%|####  | 723/1602 [2:12:45<…".
func bar(text string) (int, bool) {
	slash := -1
	for i := len(text) - 1; i > 0; i-- {
		if text[i] == '/' && i+1 < len(text) && text[i+1] >= '0' && text[i+1] <= '9' && text[i-1] >= '0' && text[i-1] <= '9' {
			slash = i
			break
		}
	}
	if slash < 0 {
		return 0, false
	}
	start := slash
	for start > 0 && text[start-1] >= '0' && text[start-1] <= '9' {
		start--
	}
	n, err := strconv.Atoi(text[start:slash])
	return n, err == nil
}

// numberAfter reads the whole number that follows a word within a few bytes of
// punctuation: "step 12", "step: 12", "'epoch': 0.31", "iteration      12/".
func numberAfter(text, word string) (int, bool) {
	i := strings.Index(text, word)
	if i < 0 {
		return 0, false
	}
	rest := strings.TrimLeft(text[i+len(word):], "s'\" :=[#(-")
	n := 0
	for n < len(rest) && n < 12 && rest[n] >= '0' && rest[n] <= '9' {
		n++
	}
	if n == 0 {
		return 0, false
	}
	v, err := strconv.Atoi(rest[:n])
	return v, err == nil
}
