package console

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"github.com/gpurun/gpurun/launcher/mask"
	"github.com/gpurun/gpurun/strategy"
)

// A Page is what a verb prints for people about a job: without its secrets, and so
// that a terminal obeys nothing that comes from the job.
type Page struct {
	w    io.Writer
	mask *mask.Masker
}

// NewPage prints on w; m may be nil, and then knows names and shapes only.
func NewPage(w io.Writer, m *mask.Masker) *Page { return &Page{w, m} }

// Printf prints as fmt.Fprintf does. Lines end where the format says so, and
// nowhere in the arguments.
func (p *Page) Printf(format string, args ...any) {
	fmt.Fprint(p.w, p.mask.Sprintf(format, args...))
}

// Text prints lines that were made elsewhere, each ended.
func (p *Page) Text(text string) {
	for line := range strings.Lines(text) {
		p.Printf("%s\n", strings.TrimSuffix(line, "\n"))
	}
}

// On is the same page on another writer, for a table in it.
func (p *Page) On(w io.Writer) *Page { return &Page{w, p.mask} }

// WriteJSON prints a value as one line of JSON, without a job's secrets; the
// durations in it are also there as --json has always had them.
func WriteJSON(w io.Writer, m *mask.Masker, value any) error {
	text, err := json.Marshal(value)
	if err != nil {
		return fmt.Errorf("encode the answer: %w", err)
	}
	_, err = fmt.Fprintf(w, "%s\n", m.JSON(WithNanoseconds(text)))
	return err
}

// durations are the fields that --json printed in nanoseconds, under these keys,
// before the journal had them in seconds.
var durations = map[string]bool{"after": true, "restart_from_zero": true, "longest": true}

// WithNanoseconds adds to a JSON document, beside each duration in seconds, the
// field that --json has always had for it. A text that is none is left as it is.
func WithNanoseconds(text []byte) []byte {
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber()
	var document any
	if decoder.Decode(&document) != nil || !addNanoseconds(document) {
		return text
	}
	more, err := json.Marshal(document)
	if err != nil {
		return text
	}
	return more
}

// addNanoseconds reports whether there was a duration.
func addNanoseconds(value any) (found bool) {
	switch value := value.(type) {
	case []any:
		for _, element := range value {
			found = addNanoseconds(element) || found
		}
	case map[string]any:
		added := map[string]int64{}
		for key, element := range value {
			found = addNanoseconds(element) || found
			name, ok := strings.CutSuffix(key, "_seconds")
			number, isNumber := element.(json.Number)
			if !ok || !durations[name] || !isNumber {
				continue
			}
			var d strategy.Seconds
			if json.Unmarshal([]byte(number), &d) == nil {
				added[name] = int64(d)
			}
		}
		for name, n := range added {
			value[name], found = n, true
		}
	}
	return found
}
