// Package mask removes secrets from gpurun's own messages and documents. A secret is known by its
// name (--hub-token, WANDB_API_KEY), by its shape (hf_…, AKIA…), and, everywhere else, by having
// the same value as one of those in the job's command or environment.
//
// The output of the ranks and changed configuration files are not masked: the job needs them
// whole.
package mask

import (
	"bytes"
	"cmp"
	"encoding/json"
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

// Sprintf is TerminalSprintf without secrets. They are masked in each argument, and in the
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

// places are the keys of gpurun's own documents whose values it uses to find things again:
// folders, checkpoints, digests. They hold no text of the job.
var places = []string{"dir", "checkpoint", "resume", "digest", "run", "kind", "time", "at", "scheduler", "nvme_path"}

// JSON masks the strings of a JSON document, and keeps every other byte. A member of an object is
// masked by its name, and an array of strings as a command. Other text is masked as Text does.
func (m *Masker) JSON(text []byte) []byte {
	if !json.Valid(text) {
		return []byte(m.Text(string(text)))
	}
	w := jsonMasker{mask: m, text: text}
	w.value("")
	w.out.Write(text[w.at:])
	return w.out.Bytes()
}

// A jsonMasker copies a valid document and masks its strings.
type jsonMasker struct {
	mask *Masker
	text []byte
	at   int
	out  bytes.Buffer
}

// copyTo copies up to a position.
func (w *jsonMasker) copyTo(end int) {
	w.out.Write(w.text[w.at:end])
	w.at = end
}

// space copies blanks, and returns the next byte.
func (w *jsonMasker) space() byte {
	end := w.at
	for end < len(w.text) && bytes.IndexByte([]byte(" \t\r\n,:"), w.text[end]) >= 0 {
		end++
	}
	w.copyTo(end)
	if end == len(w.text) {
		return 0
	}
	return w.text[end]
}

// value copies the value of a name.
func (w *jsonMasker) value(name string) {
	first := w.space()
	if name != "" && strings.IndexByte(`"tfn`, first) < 0 && Certain(name) { // true, false and null are switches
		w.whole()
		return
	}
	switch first {
	case '{':
		w.copyTo(w.at + 1)
		for w.space() != '}' {
			end := w.end()
			var key string
			_ = json.Unmarshal(w.text[w.at:end], &key) // the document is valid
			w.copyTo(end)
			w.value(key)
		}
		w.copyTo(w.at + 1)
	case '[':
		w.array(name)
	case '"':
		w.words(name, "")
	default:
		end := w.at
		for end < len(w.text) && bytes.IndexByte([]byte(",]} \t\r\n"), w.text[end]) < 0 {
			end++
		}
		w.copyTo(end)
	}
}

// whole masks a whole value, a number or several values.
func (w *jsonMasker) whole() {
	var value json.RawMessage
	decoder := json.NewDecoder(bytes.NewReader(w.text[w.at:]))
	_ = decoder.Decode(&value) // the document is valid
	w.out.WriteString(`"` + Mask + `"`)
	w.at += int(decoder.InputOffset())
}

// array copies an array; strings in it that follow each other are one command.
func (w *jsonMasker) array(name string) {
	w.copyTo(w.at + 1)
	before := ""
	for c := w.space(); c != ']'; c = w.space() {
		if c != '"' {
			w.value(name)
			before = ""
			continue
		}
		before = w.words(name, before)
	}
	w.copyTo(w.at + 1)
}

// words copies a string, masked by its name and the string before it, and returns it unmasked.
func (w *jsonMasker) words(name, before string) string {
	end := w.end()
	var value string
	_ = json.Unmarshal(w.text[w.at:end], &value) // the document is valid
	masked := value
	switch {
	case slices.Contains(places, name):
	case Secret(name, value):
		masked = Mask
	case name == "argv", option().MatchString(before), !strings.ContainsAny(value, " \t\n"):
		masked = w.mask.Words([]string{before, value})[1]
	default:
		masked = w.mask.Text(value)
	}
	if masked == value {
		w.copyTo(end)
		return value
	}
	quoted, err := json.Marshal(masked)
	if err != nil {
		quoted = []byte(`"` + Mask + `"`)
	}
	w.out.Write(quoted)
	w.at = end
	return value
}

// end is the end of the string that begins here.
func (w *jsonMasker) end() int {
	for i := w.at + 1; i < len(w.text); i++ {
		switch w.text[i] {
		case '\\':
			i++
		case '"':
			return i + 1
		}
	}
	return len(w.text)
}
