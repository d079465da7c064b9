// Package mask removes secrets from gpurun's own messages and documents. A secret is known by its
// name (--hub-token, WANDB_API_KEY), by its shape (hf_…, AKIA…), and, everywhere else, by having
// the same value as one of those in the job's command or environment.
//
// The output of the ranks and changed configuration files are not masked: the job needs them
// whole.
package mask

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Mask replaces a secret.
const Mask = "***"

// A Masker knows the secrets of one job. A nil Masker knows names and shapes only.
type Masker struct {
	values  []string
	pattern *regexp.Regexp // any of the values
}

// New learns the secrets in a job's command and environment, and the given ones, whatever they
// look like: from then on they are masked wherever they appear, also in the text of an error.
func New(argv []string, env map[string]string, given ...string) *Masker {
	var found []string
	learn := func(value string) { found = append(found, value) }
	maskWords(argv, learn)
	maskEnv(env, learn)
	var patterns []string
	values := slices.Concat(spellings(found), slices.DeleteFunc(given, func(v string) bool { return len(v) < shortest }))
	slices.SortStableFunc(values, longest)
	for _, value := range values {
		pattern := regexp.QuoteMeta(value)
		if isWord(value) {
			pattern = `\b` + pattern + `\b`
		}
		patterns = append(patterns, pattern)
	}
	if len(patterns) == 0 {
		return nil
	}
	return &Masker{values, regexp.MustCompile(strings.Join(patterns, "|"))}
}

// A shorter value is masked only after its name: elsewhere half of a text would go with it.
const (
	shortest     = 6
	shortestWord = 8 // of one that is a word like others
)

// spellings are the forms of values in texts, the longest first.
func spellings(values []string) []string {
	var all []string
	for _, value := range values {
		quoted := strconv.Quote(value)
		all = append(all, value, quoted[1:len(quoted)-1], strings.ReplaceAll(value, "'", `'\''`))
		if strings.Contains(value, "\n") {
			all = append(all, strings.Split(value, "\n")...)
		}
	}
	all = slices.DeleteFunc(all, func(v string) bool {
		return len(v) < shortest || isWord(v) && len(v) < shortestWord || trivial(v)
	})
	slices.SortStableFunc(all, longest)
	return slices.Compact(all)
}

// longest puts the longer of two values first.
func longest(a, b string) int {
	return cmp.Or(cmp.Compare(len(b), len(a)), strings.Compare(a, b))
}

// Text masks a sentence or a line of output: values after names, as options, variables and code
// write them.
func (m *Masker) Text(text string) string { return maskText(m.known(text), prose, ignore) }

// Output masks the job's own text, in which a value after a colon may have several words.
func (m *Masker) Output(text string) string { return maskText(m.known(text), output, ignore) }

// Values returns the learned secrets, for the hook in the ranks' processes.
func (m *Masker) Values() []string {
	if m == nil {
		return nil
	}
	return m.values
}

// Config masks lines of configuration files and diffs of them, where a value may
// reach to the end of the line, or over several.
func (m *Masker) Config(text string) string { return maskConfig(m.known(text)) }

// Words masks a command.
func (m *Masker) Words(argv []string) []string {
	masked := maskWords(argv, ignore)
	for i, word := range masked {
		masked[i] = m.known(word)
	}
	return masked
}

// Env masks variables.
func (m *Masker) Env(env map[string]string) map[string]string {
	masked := maskEnv(env, ignore)
	for name, value := range masked {
		masked[name] = m.known(value)
	}
	return masked
}

// Sprintf is terminal.Sprintf without secrets. They are masked in each argument, and in the
// whole, where a name and its value may meet.
func (m *Masker) Sprintf(format string, args ...any) string {
	safe := make([]any, len(args))
	for i, arg := range args {
		safe[i] = arg
		switch arg := arg.(type) {
		case time.Duration:
		case string:
			safe[i] = m.Text(arg)
		case error:
			safe[i] = m.Text(arg.Error())
		case fmt.Stringer:
			safe[i] = m.Text(arg.String())
		}
	}
	return m.Text(TerminalSprintf(format, safe...))
}

// Line is a text as one visible line without secrets, cut after so many characters.
func (m *Masker) Line(text string, most int) string {
	if enough := 4*most + 1024; len(text) > enough { // so far behind the cut that no secret is cut in two before it
		text = text[:enough]
	}
	return CutText(TerminalLine(m.Text(text)), most)
}

// known masks the learned secrets.
func (m *Masker) known(text string) string {
	if m == nil || !containsAny(text, m.values) {
		return text
	}
	return m.pattern.ReplaceAllLiteralString(text, Mask)
}

// ignore is for callers that need no list of the found secrets.
func ignore(string) {}
