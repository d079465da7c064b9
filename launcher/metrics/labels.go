package metrics

import (
	"unicode/utf8"

	"github.com/gpurun/gpurun/launcher/terminal"
)

// longestLabel bounds the value of a label, in bytes.
const longestLabel = 128

// label is a text as the value of a label: short, of visible characters, and without the
// job's secrets.
func (m *Metrics) label(text string) string {
	text = terminal.Line(m.mask.Text(text))
	if len(text) <= longestLabel {
		return text
	}
	cut := longestLabel - len("…")
	for !utf8.RuneStart(text[cut]) {
		cut--
	}
	return text[:cut] + "…"
}
