package mask

import (
	"github.com/gpurun/gpurun/launcher/lazy"
	"strings"
)

// begun is the first line of a value that continues on further lines: YAML's blocks and the long
// strings of TOML.
var begun = lazy.Regexp(`^([ +\-]?)(\s*(?:-\s+)?)["']?([A-Za-z_][\w.\-]*)["']?\s*(?::\s*[|>][-+0-9]*|=\s*("""|'''))\s*(.*)$`)

// maskConfig masks the lines of a configuration file, or of a diff.
func maskConfig(text string) string {
	var b strings.Builder
	open := block{}
	for line := range strings.Lines(text) {
		body, end := strings.TrimRight(line, "\r\n"), line[len(strings.TrimRight(line, "\r\n")):]
		switch {
		case open.holds(body):
			b.WriteString(open.mask(body))
		default:
			open = opened(body)
			b.WriteString(open.begin(body))
		}
		b.WriteString(end)
	}
	return replaceGroup(privateKey(), b.String())
}

// maskLine masks a line; the + of a diff is no part of it.
func maskLine(line string) string {
	if len(line) > 1 && (line[0] == '+' || line[0] == '-') && line[1] != line[0] {
		return line[:1] + maskText(line[1:], config, ignore)
	}
	return maskText(line, config, ignore)
}

// A block is a secret that continues on the lines that follow.
type block struct {
	named  bool
	indent int    // of its name; the block's lines have more
	quote  string // that ends it, in TOML
	rest   string // the value in the first line
}

// opened is the block that a line begins, if any.
func opened(line string) block {
	m := begun().FindStringSubmatch(line)
	if m == nil || !Named(m[3]) {
		return block{}
	}
	if m[4] != "" && strings.Contains(m[5], m[4]) {
		return block{} // it ends in the same line
	}
	return block{named: true, indent: indentOf(line), quote: m[4], rest: m[5]}
}

// holds reports whether a line belongs to the block; otherwise it ends the block.
func (k *block) holds(line string) bool {
	switch {
	case !k.named, strings.HasPrefix(line, "@@"):
		k.named = false
	case k.quote == "":
		k.named = strings.TrimSpace(unprefixed(line)) == "" || indentOf(line) > k.indent
	}
	return k.named
}

// begin masks the line that begins the block, or one that begins none.
func (k *block) begin(line string) string {
	switch {
	case !k.named:
		return maskLine(line)
	case k.quote != "" && k.rest != "":
		return strings.TrimSuffix(line, k.rest) + Mask
	}
	return line
}

// mask masks a line of the block.
func (k *block) mask(line string) string {
	body := unprefixed(line)
	if k.quote != "" && strings.Contains(body, k.quote) {
		k.named = false
		_, after, _ := strings.Cut(body, k.quote)
		return line[:len(line)-len(body)] + Mask + k.quote + after
	}
	if strings.TrimSpace(body) == "" {
		return line
	}
	return line[:len(line)-len(strings.TrimLeft(body, " \t"))] + Mask
}

// unprefixed is a line without the first character of a diff.
func unprefixed(line string) string {
	if line != "" && strings.ContainsRune("+- ", rune(line[0])) {
		return line[1:]
	}
	return line
}

func indentOf(line string) int {
	body := unprefixed(line)
	return len(body) - len(strings.TrimLeft(body, " \t"))
}
