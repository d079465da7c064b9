package cause

import (
	"slices"
	"strconv"
	"strings"
)

// rates are the units of progress bars that count steps. Others count bytes,
// files and samples of a dataset.
var rates = []string{"it/s", "s/it", "step/s", "s/step", "steps/s", "batch/s", "s/batch", "iter/s", "s/iter"}

func contains(text string, any []string) bool {
	return slices.ContainsFunc(any, func(w string) bool { return strings.Contains(text, w) })
}

// step reads a line of progress in training: a progress bar, or a log line with a loss. Weight is
// how much the line proves that training continues: a bar redraws itself once when it closes, a
// loss is computed again.
func step(text string) (number, weight int, ok bool) {
	switch {
	case contains(text, rates):
		if contains(text, []string{"Loading", "ownload", "Map", "okeniz", "Generating", "Filter", "etching", "pload"}) {
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
