package mask

import (
	"regexp"
	"slices"
	"strings"
	"unicode"

	"github.com/gpurun/gpurun/launcher/lazy"
)

// A secretShape recognises secrets by their form. The pattern's first group is masked; without
// one, the whole match.
type secretShape struct {
	hints   []string // in small letters: a text without one of them has none of these
	text    string   // of the pattern
	pattern func() *regexp.Regexp
}

func shape(text string, hints ...string) secretShape {
	return secretShape{hints, text, lazy.Regexp(text)}
}

// shapes are by the documentation of the services that issue such secrets.
var shapes = []secretShape{
	shape(`\bgh[pousr]_[A-Za-z0-9]{16,}`, "ghp_", "gho_", "ghu_", "ghs_", "ghr_"),
	shape(`\bgithub_pat_[A-Za-z0-9_]{16,}`, "github_pat_"),
	shape(`\bglpat-[A-Za-z0-9_\-]{16,}`, "glpat-"),
	shape(`\bsk-(?:[a-z0-9]{2,8}-)*[A-Za-z0-9_]{16,}[\w\-]*`, "sk-"), // OpenAI, Anthropic
	shape(`\bsk_(?:live|test)_[A-Za-z0-9]{16,}`, "sk_live_", "sk_test_"),
	shape(`\b(?:AKIA|ASIA)[0-9A-Z]{12,}`, "akia", "asia"), // AWS
	shape(`\bxox[a-z]-[A-Za-z0-9\-]{8,}`, "xox"),          // Slack
	shape(`\bAIza[0-9A-Za-z_\-]{30,}`, "aiza"),            // Google
	shape(`\bya29\.[0-9A-Za-z_\-]{16,}`, "ya29."),
	shape(`\bnvapi-[A-Za-z0-9_\-]{16,}`, "nvapi-"),
	// npm, Replicate, Groq, Docker
	shape(`\b(?:npm|r8|gsk|dckr_pat)_[A-Za-z0-9_\-]{20,}`, "npm_", "r8_", "gsk_", "dckr_pat_"),
	shape(`\bpypi-[A-Za-z0-9_\-]{16,}`, "pypi-"),
	shape(`\bapi_org_[A-Za-z]{16,}`, "api_org_"), // Hugging Face, of organisations
	shape(`\bwandb_v1_[A-Za-z0-9_\-]{16,}`, "wandb_v1_"),
	shape(`\beyJ[A-Za-z0-9_\-]{8,}\.eyJ[A-Za-z0-9_\-]{8,}\.[A-Za-z0-9_\-]+`, "eyj"), // JSON web tokens
	shape(`(?i)\b(?:bearer|basic)\s+([A-Za-z0-9._~+/\-]{12,}=*)`, "bearer", "basic"),
	shape(`(?i)https://[a-z0-9.\-]*(?:hooks\.slack\.com/services/|/api/webhooks/)([^\s"'?]+)`, "hooks.slack.com",
		"/api/webhooks/"),
	shape(`(?i)[?&](?:sig|x-amz-signature|x-amz-security-token|x-goog-signature)=([^&\s"']+)`, "sig=", "signature=",
		"security-token="),
	shape(privateKeyText, "private key-----"),
}

// privateKey is a key in the files of SSH and TLS, over many lines.
const privateKeyText = `(?s)-----BEGIN [A-Z ]*PRIVATE KEY-----(.*?)(?:-----END|$)`

var privateKey = lazy.Regexp(privateKeyText)

// hugging is the shape of Hugging Face's tokens, which names of modules share.
const huggingText = `\bhf_[A-Za-z0-9]{16,}`

var hugging = lazy.Regexp(huggingText)

// userinfo is the part between an address's scheme and its host. A password may hold a slash,
// which is invalid in an address, and typed nevertheless.
const userinfoText = `\b[A-Za-z][A-Za-z0-9+.\-]*://(?:[^\s/"'<>|]*|[^\s/"'<>|@:]+:[^\s"'<>|]*)@`

var userinfo = lazy.Regexp(userinfoText)

// port is a host with a port and a path, which userinfo takes for a password.
var port = lazy.Regexp(`^[^:/]+:[0-9]+/`)

// containers are schemes with the name of a container where others have a user.
var containers = map[string]bool{"abfs": true, "abfss": true, "wasb": true, "wasbs": true, "oci": true}

// maskShapes masks secrets by their form.
func maskShapes(text string) string {
	if strings.Contains(text, "://") && strings.Contains(text, "@") {
		text = userinfo().ReplaceAllStringFunc(text, func(at string) string {
			scheme, user, _ := strings.Cut(strings.TrimSuffix(at, "@"), "://")
			if containers[strings.ToLower(scheme)] || user == "git" || user == "" || port().MatchString(user) {
				return at
			}
			return scheme + "://" + Mask + "@"
		})
	}
	if strings.Contains(text, "hf_") {
		text = hugging().ReplaceAllStringFunc(text, func(at string) string {
			if len(at) < 30 && !strings.ContainsFunc(at, unicode.IsDigit) && !strings.ContainsFunc(at, unicode.IsUpper) {
				return at // the name of a module
			}
			return Mask
		})
	}
	small := strings.ToLower(text)
	for _, shape := range shapes {
		if containsAny(small, shape.hints) {
			text = replaceGroup(shape.pattern(), text)
		}
	}
	return text
}

func containsAny(text string, words []string) bool {
	return slices.ContainsFunc(words, func(word string) bool { return strings.Contains(text, word) })
}

// replaceGroup masks the first group of each match, or all of it where there is none.
func replaceGroup(pattern *regexp.Regexp, text string) string {
	var b strings.Builder
	at := 0
	for _, m := range pattern.FindAllStringSubmatchIndex(text, -1) {
		from, to := m[0], m[1]
		if len(m) > 2 {
			from, to = m[2], m[3]
		}
		b.WriteString(text[at:from])
		b.WriteString(Mask)
		at = to
	}
	return b.String() + text[at:]
}

// After these names any value is a secret, whatever its length and form: nothing harmless is called so. The
// hook in the ranks' processes has the same rules (Rules), so that they are written for Go and for Python: without
// anything that only one of the two knows.
const (
	certainWords = `pass[_.\-]?(?:word|wd|phrase|code|wort)|(?:api|access|account|secret|subscription|encryption|signing)[_.\- ]?key|` +
		`(?:api|app|auth|access|refresh|bearer|session|security|personal|private|client|csrf|xsrf|hub|hf|vault|secret)[_.\- ]?token|` +
		`(?:api|client|app|consumer|shared|webhook|signing|jwt|access)[_.\- ]?secret|` + headerWords
	// headerWords are names of HTTP headers whose values have several words.
	headerWords = `(?:proxy-)?authorization|(?:set[_\-])?cookies?2?`
	// A name may have a part before these words, and a number or a word that says which one it is behind them.
	certainName = `(?:[\w.\-]*(?:` + certainWords +
		`)|\bx-[a-z0-9\-]*(?:key|token|secret|auth|signature))(?:s|[_\-]?\d+|[_\-](?:prod|production|dev|test|staging|old|new|value|text|b64|base64))?`
	// colours may stand around a name on a terminal.
	colours = `(?:\x1b\[[0-9;]*m)*`
	// A value follows after one of four: an assignment, the next item of a list, a URL's %3D, and blanks. The last is
	// for options, and for values in quotes.
	separators = `(\\*["']\s*(?::|,)\s*|` + colours + `\\*["']?\]?` + colours + `[ \t]*(?::=|=>|=|:)[ \t]*` + colours +
		`|%3[AaDd]|(?: provided)?:[ \t]+|[ \t]+(?:(?:is|was)[ \t]+)?)`

	certainText  = `(?i)(` + certainName + `)` + separators
	wholeName    = `(?i)^-{0,2}\+?(?:[\w/@:]+\.)?` + certainName + `$`
	quotedText   = `(?s)^(?:\\+"(.*?)(?:\\+"|$)|[bruBRU]{0,2}"""(.*?)(?:"""|$)|[bruBRU]{0,2}"((?:[^"\\]|\\.)*)(?:"|$)|[bruBRU]{0,2}'((?:'\\''|[^'\\]|\\.)*)(?:'|$))`
	schemeText   = "(?i)^(?:bearer|basic|digest|token|negotiate|ntlm|apikey|bot|key|aws4-hmac-sha256)[ \t]+"
	headerText   = "^[^\\s\"'`]+(?:[;,]?[ \t]+[\\w.\\-]+=(?:\"[^\"]*\"|[^\\s\"'`]*))*"
	lineText     = "^[^\"'`\r\n]+"
	wordText     = "^[^\\s\"'`]+"
	endText      = `[,;)\]}>.]+(?:\s|$)|\s#|[,;&]\s*["']?[A-Za-z_][\w.\-]*["']?[=:]|\s--?[A-Za-z]|\s[A-Za-z_][\w.\-]*=`
	harmlessText = `(?i)^(?:true|false|yes|no|on|off|none|null|nil|auto|default|env|~|\*+)?$|^(?:[a-z_]\w*\.)*(?:` +
		certainName + `)$`
	variableText = `^\$\{?[A-Z_][A-Z0-9_]*\}?$|^\$\{\{.*\}\}$`
)

// mixedText is a form for the hook, which does not know the names of Secret: what has letters and digits.
const mixedText = `(?i)(?:\b|_)(?:token|secret|credentials?)\\*["']?\]?\s*[:=]\s*\\*["']?([a-z][\w+/=.\-]*[0-9][\w+/=.\-]{2,}|[0-9]+[a-z][\w+/=.\-]{2,})`

// Rules are the rules as the hook gets them: patterns by name, and the words of which one is in every text that a
// pattern finds something in.
func Rules() map[string]any {
	forms := []any{[]any{huggingText, []string{"hf_"}}, []any{mixedText, []string{"token", "secret", "credential"}}}
	for _, s := range shapes {
		forms = append(forms, []any{s.text, s.hints})
	}
	return map[string]any{
		"text": certainText, "name": wholeName, "quoted": quotedText, "scheme": schemeText,
		"header": `(?i)^(?:` + headerWords + `)$`, "params": headerText, "line": lineText,
		"word": wordText, "end": endText, "harmless": harmlessText, "variable": variableText, "forms": forms,
		"hints": certainHints, "address": userinfoText, "mask": Mask,
	}
}

var (
	certainAt    = lazy.Regexp(certainText)
	certainly    = lazy.Regexp(wholeName)
	quotedAt     = lazy.Regexp(quotedText)
	schemeAt     = lazy.Regexp(schemeText)
	headerName   = lazy.Regexp(`(?i)^(?:` + headerWords + `)$`)
	paramsAt     = lazy.Regexp(headerText)
	lineAt       = lazy.Regexp(lineText)
	wordAt       = lazy.Regexp(wordText)
	endOfCertain = lazy.Regexp(endText)
	harmless     = lazy.Regexp(harmlessText)
	variableName = lazy.Regexp(variableText)
)

// certainHints are in every text with such a name, in small letters.
var certainHints = []string{"passw", "passp", "passc", "pass_", "pass.", "pass-", "key", "token", "secret",
	"authorization", "cookie", "x-"}

// Certain reports whether any value of a name is a secret.
func Certain(name string) bool {
	return containsAny(strings.ToLower(name), certainHints) && certainly().MatchString(name)
}

// isHarmless reports whether a value is a switch, or refers to another place.
func isHarmless(value string) bool {
	value = strings.TrimSpace(value)
	return harmless().MatchString(value) || variableName().MatchString(value)
}

// maskCertain masks any value after the names for which that is certain, and reports them. In the job's own text and in
// configuration files a value after a colon may have several words.
func maskCertain(text string, as textKind, found func(string)) string {
	if !containsAny(strings.ToLower(text), certainHints) {
		return text
	}
	return maskValues(text, certainAt().FindAllStringSubmatchIndex(text, -1), found, func(m []int) (from, to int) {
		if from, to = certainValue(text, m, as); isHarmless(text[from:to]) {
			return 0, 0
		}
		return from, to
	})
}

// maskValues masks the values to which matches lead, and reports them. Value gives the position of one; empty for none.
func maskValues(text string, matches [][]int, found func(string), value func(m []int) (from, to int)) string {
	var b strings.Builder
	done := 0
	for _, m := range matches {
		if m[0] < done {
			continue // inside the value before
		}
		from, to := value(m)
		if from == to {
			continue
		}
		found(text[from:to])
		b.WriteString(text[done:from])
		b.WriteString(Mask)
		done = to
	}
	return b.String() + text[done:]
}

// certainValue is the position of the value that belongs to a match of certainAt; empty where there is none.
func certainValue(text string, m []int, as textKind) (from, to int) {
	name, separator, rest := text[m[2]:m[3]], text[m[4]:m[5]], text[m[5]:]
	if q := quotedAt().FindStringSubmatchIndex(rest); q != nil {
		for i := 2; i < len(q); i += 2 {
			if q[i] >= 0 {
				return m[5] + q[i], m[5] + q[i+1]
			}
		}
	}
	quoted := strings.ContainsAny(separator, `"'`)
	blank := strings.TrimSpace(separator) == ""
	word := strings.TrimSpace(separator)
	if blank && !strings.HasPrefix(name, "-") || word == "is" || word == "was" || quoted && strings.HasSuffix(word, ",") {
		return 0, 0
	}
	if rest == "" || strings.ContainsAny(rest[:1], "=:\r\n") || blank && len(rest) > 1 && rest[0] == '-' &&
		rest[1] != ' ' {
		return 0, 0
	}
	header := headerName().MatchString(strings.TrimLeft(name, "-"))
	if header {
		rest = rest[len(schemeAt().FindString(rest)):]
	}
	from = len(text) - len(rest)
	switch {
	case header && as == prose:
		return from, from + len(paramsAt().FindString(rest))
	case header:
		return from, from + lineEnd(rest, text[:m[2]])
	}
	value := wordAt().FindString(rest)
	if as != prose && strings.Contains(separator, ":") && !quoted {
		value = lineAt().FindString(rest)
	}
	if at := endOfCertain().FindStringIndex(value); at != nil {
		value = value[:at[0]]
	}
	return from, from + len(strings.TrimRight(value, " \t"))
}

// lineEnd is the length of a header's value: up to the quote that was opened before its name, or to the end of the
// line.
func lineEnd(value, before string) int {
	end := len(value)
	if at := strings.IndexAny(value, "\r\n"); at >= 0 {
		end = at
	}
	if before != "" && strings.ContainsAny(before[len(before)-1:], "\"'") {
		if at := strings.IndexByte(value[:end], before[len(before)-1]); at >= 0 {
			end = at
		}
	}
	return end
}
