package job

import (
	"regexp"
	"strings"
	"unicode/utf8"
)

// addressed is an address in a line of a file, with a scheme or as the value of a url. What
// follows its host is a secret.
var addressed = regexp.MustCompile(`([A-Za-z]+:/+[^/"'\s]*|\burl\s*=\s*["']*[^/:"'\s]+/)([^"'\s]*)`)

// hushed are the faults of a text as they may be shown. Of [notify] no value is, nor what a
// parser quotes of one. Elsewhere stars stand for what is secret in an address, one for each
// character, so that the caret stands right.
func hushed(text []byte, faults []Fault) []Fault {
	lines := strings.Split(string(text), "\n")
	for i := range faults {
		f := &faults[i]
		if inNotify(f, lines) {
			hush(f)
			continue
		}
		f.Source = addressed.ReplaceAllStringFunc(f.Source, func(at string) string {
			host := addressed.FindStringSubmatch(at)[1]
			return host + strings.Repeat("*", utf8.RuneCountInString(at[len(host):]))
		})
	}
	return faults
}

var (
	notifyLine = regexp.MustCompile(`^\[*\s*["']?notify\b`)
	headerLine = regexp.MustCompile(`^\[+\s*[A-Za-z][\w.\s-]*\]+\s*(#.*)?$`)
	// quietLine is how a line of [notify] begins that shows no value.
	quietLine = regexp.MustCompile(`^\s*(\[\s*notify\s*\]|notify\s*=|(notify\.)?[a-z_]+\s*=)`)
	// repeated is all that a parser may say of a line of [notify].
	repeated = regexp.MustCompile(`^not TOML: key '[a-z_.]+' has already been defined$`)
)

// inNotify reports whether a fault is one of [notify]. Where the text is no TOML, the lines
// above it tell.
func inNotify(f *Fault, lines []string) bool {
	if f.Key == "notify" || strings.HasPrefix(f.Key, "notify.") {
		return true
	}
	for n := min(f.Line, len(lines)) - 1; n >= 0; n-- {
		line := strings.TrimSpace(lines[n])
		if notifyLine.MatchString(line) {
			return true
		}
		if headerLine.MatchString(line) {
			return false
		}
	}
	return false
}

// hush takes the values out of a fault of [notify].
func hush(f *Fault) {
	if shown := quietLine.FindString(f.Source); len(shown) < len(strings.TrimRight(f.Source, " \t")) {
		f.Source = strings.TrimLeft(shown+" ***", " ")
	}
	if strings.HasPrefix(f.Message, "not TOML: ") && !repeated.MatchString(f.Message) {
		f.Message = "not TOML: this line cannot be read, or one above it; values stand in quotes (they are not shown, since they may be secrets)"
	}
	if key, _, quoted := strings.Cut(f.Key, `"`); quoted {
		f.Key = key + "***"
	}
}
