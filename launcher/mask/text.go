package mask

import (
	"regexp"
	"strings"

	"github.com/gpurun/gpurun/launcher/lazy"
)

// A textKind is the kind of a text.
type textKind int

const (
	prose  textKind = iota // sentences, source code, commands
	output                 // the job's own text, a line or several
	config                 // lines of a configuration file
)

var (
	// nameAt matches a possible name, with the dashes of an option before it.
	nameAt = lazy.Regexp(`-{0,2}[A-Za-z_][\w.\-]*`)
	// Between a name and its value.
	afterOption = lazy.Regexp(`^(?:=|["']?\s*,\s*|\s+)`)
	afterName   = lazy.Regexp(`^(\\?["'])?\]?\s*(:=|=>|=|:)\s*`)

	quotedValues = []func() *regexp.Regexp{
		lazy.Regexp(`^(\\")((?:[^"\\]|\\[^"])*)(?:\\"|$)`), // in a text that is quoted itself
		lazy.Regexp(`^([bru]?""")(.*?)(?:"""|$)`),
		lazy.Regexp(`^([bru]?")((?:[^"\\]|\\.)*)(?:"|$)`),
		lazy.Regexp(`^([bru]?')((?:'\\''|[^'\\]|\\.)*)(?:'|$)`),
	}
	bareValue = lazy.Regexp("^[^\\s\"'`,;&()\\[\\]{}\\\\]+")
	// bracketed are <pad>, [PAD] and ${NAME}.
	bracketed = lazy.Regexp(`^(?:\$\{[^}]*\}|[<\[][^\s"',;]*)`)
	// variable is a variable in source code in place of a value.
	variable = lazy.Regexp(`^[A-Za-z_]\w*(\.[A-Za-z_]\w*)+$`)
)

// maskText masks the values after the names of secrets in a text, and reports them, then secrets
// by their form.
func maskText(text string, as textKind, found func(string)) string {
	for _, m := range addresses(text) {
		if _, password, ok := strings.Cut(strings.TrimSuffix(m[strings.Index(m, "://")+3:], "@"), ":"); ok &&
			maskShapes(m) != m {
			found(password)
		}
	}
	text = maskCertain(maskShapes(text), as, found)
	if !strings.ContainsAny(text, "=:-") || !containsAny(strings.ToLower(text), lastWords) {
		return text
	}
	return maskValues(text, nameAt().FindAllStringIndex(text, -1), found, func(at []int) (from, to int) {
		if at[0] > 0 && text[at[0]-1] == '/' || !Named(text[at[0]:at[1]]) {
			return 0, 0
		}
		return valueAfter(text, at[0], at[1], as)
	})
}

// lastWords are in every name of a secret, in small letters.
var lastWords = []string{"token", "key", "secret", "passw", "passphrase", "credential"}

// addresses are those in a text with a user.
func addresses(text string) []string {
	if !strings.Contains(text, "://") || !strings.Contains(text, "@") {
		return nil
	}
	return userinfo().FindAllString(text, -1)
}

// valueAfter is the position of the value of the name at [start, end); empty where there is none,
// or no secret.
func valueAfter(text string, start, end int, as textKind) (from, to int) {
	name, rest := text[start:end], text[end:]
	dashed := strings.HasPrefix(name, "-")
	separator, colon := "", false
	if m := afterOption().FindString(rest); dashed && m != "" {
		separator = m
	} else if m := afterName().FindStringSubmatch(rest); m != nil {
		separator = m[0]
		colon = m[2] == ":"
		glued := strings.HasSuffix(m[0], ":") && m[1] == "" &&
			!strings.ContainsAny(rest[len(m[0]):min(len(rest), len(m[0])+1)], `"'`)
		if colon && glued {
			return 0, 0 // host:port, std::string
		}
	}
	value := rest[len(separator):]
	if separator == "" || value == "" || strings.HasPrefix(value, "=") {
		return 0, 0
	}
	from = end + len(separator)
	if at, length, quoted := quotedValue(value); quoted {
		if !Secret(name, value[at:at+length]) {
			return 0, 0
		}
		return from + at, from + at + length
	}
	if dashed && isOption(firstWord(value)) {
		return 0, 0
	}
	length := bareLength(value, as, colon, start == firstName(text))
	bare := value[:length]
	switch {
	case !Secret(name, bare):
		return 0, 0
	case as != config && colon && isBare(rest) && isWord(firstWord(bare)): // invalid token: unexpected end
		return 0, 0
	case as != config && (isCode(bare, name) || strings.HasPrefix(value[length:], "(") ||
		strings.HasPrefix(value[length:], "[")):
		return 0, 0
	}
	return from, from + length
}

// isBare reports whether no quote closes the name before its separator.
func isBare(rest string) bool {
	return !strings.HasPrefix(rest, `"`) && !strings.HasPrefix(rest, `'`) && !strings.HasPrefix(rest, `\`)
}

// quotedValue is the position and length of a value in quotes.
func quotedValue(value string) (at, length int, ok bool) {
	for _, pattern := range quotedValues {
		if m := pattern().FindStringSubmatchIndex(value); m != nil {
			return m[4], m[5] - m[4], true
		}
	}
	return 0, 0, false
}

// bareLength is the length of a value without quotes. In a configuration file it reaches from the
// line's first name to the end of the line, or to a comment.
func bareLength(value string, as textKind, colon, first bool) int {
	if as == config && colon && first {
		if i := strings.Index(value, " #"); i >= 0 {
			value = value[:i]
		}
		return len(strings.TrimRight(value, " \t\r\n,"))
	}
	if m := bracketed().FindString(value); m != "" {
		return len(m)
	}
	return len(bareValue().FindString(value))
}

// isCode reports whether a value is a variable of a program: token=args.hub_token,
// token=token.
func isCode(value, name string) bool {
	return value == name || variable().MatchString(value) && Named(value)
}

// firstName is where the first name of a line begins.
func firstName(line string) int {
	if at := nameAt().FindStringIndex(line); at != nil {
		return at[0]
	}
	return -1
}

func firstWord(text string) string {
	if fields := strings.Fields(text); len(fields) > 0 {
		return fields[0]
	}
	return ""
}

// begun is the first line of a value that continues on further lines: YAML's blocks and the long
// strings of TOML.
var begun = lazy.Regexp(
	`^([ +\-]?)(\s*(?:-\s+)?)["']?([A-Za-z_][\w.\-]*)["']?\s*(?::\s*[|>][-+0-9]*|=\s*("""|'''))\s*(.*)$`)

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
