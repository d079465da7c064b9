package show

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"github.com/gpurun/gpurun/launcher/mask"
)

// A Page prints text about a job for people: without secrets, and with control characters of
// the job escaped.
type Page struct {
	w    io.Writer
	mask *mask.Masker
}

// NewPage prints on w; with a nil m, only secrets known by name or shape are masked.
func NewPage(w io.Writer, m *mask.Masker) *Page { return &Page{w, m} }

// Printf prints as fmt.Fprintf does. Lines end in the format only, never in an argument.
func (p *Page) Printf(format string, args ...any) {
	fmt.Fprint(p.w, p.mask.Sprintf(format, args...))
}

// Text prints lines.
func (p *Page) Text(text string) {
	for line := range strings.Lines(text) {
		p.Printf("%s\n", strings.TrimSuffix(line, "\n"))
	}
}

// On returns the page with another writer, for a table in it.
func (p *Page) On(w io.Writer) *Page { return &Page{w, p.mask} }

// WriteJSON prints a value as one line of JSON, without the job's secrets.
func WriteJSON(w io.Writer, m *mask.Masker, value any) error {
	text, err := json.Marshal(value)
	if err != nil {
		return fmt.Errorf("encode the answer: %w", err)
	}
	_, err = fmt.Fprintf(w, "%s\n", m.JSON(text))
	return err
}
