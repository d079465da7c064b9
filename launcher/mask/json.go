package mask

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
)

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
