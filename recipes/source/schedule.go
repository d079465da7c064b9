package source

import (
	"fmt"
	"regexp"
	"strings"
)

// A Schedule is a learning rate's, whose length code counts in batches of a loader.
type Schedule struct {
	Name string // what is called: "OneCycleLR"
	Line int
	Text string // the argument that counts: "steps_per_epoch=len(loader)"
}

// String says where the schedule is, and by what it counts.
func (s Schedule) String() string { return fmt.Sprintf("%s counts batches (%s)", s.Name, s.Text) }

var (
	// schedulers are the calls that make a schedule, in PyTorch, transformers and timm.
	schedulers = regexp.MustCompile(`\b(\w*(?:OneCycleLR|CosineAnnealing\w*|LinearLR|PolynomialLR|LambdaLR|CosineLRScheduler|CyclicLR)|get_(?:\w+_)?schedule(?:r|_with_\w+)?)[ \t]*\(`)
	counted    = regexp.MustCompile(`\blen\([^()]*(?:load|dl\b|iter|train|data)[^()]*\)`)
	name       = regexp.MustCompile(`[A-Za-z_][\w.]*`)
)

// deepestCount is how many assignments a length is followed through.
const deepestCount = 4

// BatchSchedule finds the first schedule of a text whose length is the number of a
// loader's batches. One that is divided by the accumulation counts optimizer steps, and is
// none.
func BatchSchedule(text []byte) (Schedule, bool) {
	if !strings.Contains(string(text), "len(") {
		return Schedule{}, false
	}
	clean := withoutComments(string(text))
	for _, at := range schedulers.FindAllStringSubmatchIndex(clean, -1) {
		if strings.HasSuffix(strings.TrimRight(clean[:at[0]], " \t"), "def") {
			continue
		}
		parts, _ := inBrackets(clean, at[1]-1)
		for _, part := range parts {
			if inBatches(clean[:at[0]], part, deepestCount) {
				return Schedule{Name: clean[at[2]:at[3]], Line: lineOf(string(text), clean[at[2]:at[3]]), Text: strings.Join(strings.Fields(part), " ")}, true
			}
		}
	}
	return Schedule{}, false
}

// inBatches reports whether an expression is made of the number of a loader's batches,
// going by the assignments before it.
func inBatches(before, expression string, depth int) bool {
	if strings.Contains(strings.ToLower(expression), "accum") || strings.Contains(expression, "update_freq") {
		return false
	}
	if counted.MatchString(expression) {
		return true
	}
	if _, value, is := strings.Cut(expression, "="); is && !strings.Contains(value, "=") {
		expression = value
	}
	for _, n := range name.FindAllString(expression, -1) {
		if depth == 0 || !strings.Contains(before, n) {
			continue
		}
		assigned := regexp.MustCompile(`(?m)^[ \t]*`+regexp.QuoteMeta(n)+`[ \t]*=[ \t]*([^=\n].*)$`).FindAllStringSubmatchIndex(before, -1)
		if len(assigned) == 0 {
			continue
		}
		last := assigned[len(assigned)-1]
		if inBatches(before[:last[0]], before[last[2]:last[3]], depth-1) {
			return true
		}
	}
	return false
}

// lineOf is the line of a text in which a name is called first, from 1.
func lineOf(text, called string) int {
	at := regexp.MustCompile(`\b` + regexp.QuoteMeta(called) + `[ \t]*\(`).FindStringIndex(text)
	if at == nil {
		return 1
	}
	return 1 + strings.Count(text[:at[0]], "\n")
}
