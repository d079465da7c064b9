package mask

import (
	"github.com/gpurun/gpurun/launcher/lazy"
	"regexp"
	"slices"
	"strings"
	"unicode"
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
	shape(`\b(?:npm|r8|gsk|dckr_pat)_[A-Za-z0-9_\-]{20,}`, "npm_", "r8_", "gsk_", "dckr_pat_"), // npm, Replicate, Groq, Docker
	shape(`\bpypi-[A-Za-z0-9_\-]{16,}`, "pypi-"),
	shape(`\bapi_org_[A-Za-z]{16,}`, "api_org_"), // Hugging Face, of organisations
	shape(`\bwandb_v1_[A-Za-z0-9_\-]{16,}`, "wandb_v1_"),
	shape(`\beyJ[A-Za-z0-9_\-]{8,}\.eyJ[A-Za-z0-9_\-]{8,}\.[A-Za-z0-9_\-]+`, "eyj"), // JSON web tokens
	shape(`(?i)\b(?:bearer|basic)\s+([A-Za-z0-9._~+/\-]{12,}=*)`, "bearer", "basic"),
	shape(`(?i)https://[a-z0-9.\-]*(?:hooks\.slack\.com/services/|/api/webhooks/)([^\s"'?]+)`, "hooks.slack.com", "/api/webhooks/"),
	shape(`(?i)[?&](?:sig|x-amz-signature|x-amz-security-token|x-goog-signature)=([^&\s"']+)`, "sig=", "signature=", "security-token="),
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
