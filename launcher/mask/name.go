package mask

import (
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/gpurun/gpurun/launcher/lazy"
)

// The last word of the name of a secret. Those of the second list are so often a field of data or
// a piece of a vocabulary that the value has to look like a secret, unless the word before makes
// it certain.
var (
	always = []string{"password", "passwd", "passphrase", "secret", "credential", "credentials", "apikey", "accesskey",
		"secretkey", "privatekey", "authtoken", "accesstoken", "hftoken"}
	sometimes = []string{"token", "key"}
	// secretly are the words before "token" or "key" that make it certain.
	secretly = []string{"api", "access", "account", "auth", "authorization", "bearer", "bot", "client", "csrf", "deploy",
		"encryption", "gh", "github", "gitlab", "hf", "hub", "huggingface",
		"id", "identity", "jwt", "license", "login", "master", "oauth", "openai", "pat", "personal", "private", "read",
		"refresh", "registry", "secret", "service", "session", "shared", "signing",
		"slack", "ssh", "user", "wandb", "webhook", "write"}
	// vocabulary are the words before "token" or "key" that name a piece of text or a
	// field, whatever its value looks like.
	vocabulary = []string{"pad", "eos", "bos", "unk", "mask", "sep", "cls", "eot", "eod", "image", "video", "audio",
		"instance", "placeholder", "initializer", "modifier", "special", "stop", "start",
		"end", "begin", "prefix", "suffix", "middle", "fim", "sort", "text", "label", "input", "output", "target", "prompt",
		"response", "caption", "metric", "monitor", "dataset", "column", "primary", "foreign", "group", "partition", "json",
		"max", "min", "num", "n", "per", "next", "first", "last", "trigger", "class", "concept", "boi", "eoi", "think",
		"query", "attention", "cache"}
)

// Secret reports whether a name is that of a secret, and the value is none of the things that
// such names also have: a number, a truth value, a path, a word of a vocabulary.
func Secret(name, value string) bool {
	if !containsAny(strings.ToLower(name), certainHints) && !containsAny(strings.ToLower(name), lastWords) {
		return false
	}
	words := wordsOf(name)
	switch {
	case Certain(name):
		return !isHarmless(value)
	case len(words) == 0:
		return false
	}
	last, before := words[len(words)-1], ""
	if len(words) > 1 {
		before = words[len(words)-2]
	}
	switch {
	case slices.Contains(sometimes, last):
		certain := slices.Contains(secretly, before) || last == "token" && before == ""
		return !slices.Contains(vocabulary, before) && (certain || !isField(name, last, value)) && !trivial(value)
	case slices.Contains(always, last), strings.HasSuffix(last, "password"), strings.HasSuffix(last, "passwd"),
		strings.HasSuffix(last, "apikey"):
		return !trivial(value)
	}
	return false
}

// Named reports whether a name can be one of a secret, whatever its value.
func Named(name string) bool { return Secret(name, "x7Fq2w9Zk4") }

// wordsOf splits the name of an option, a variable or a key of a configuration into words in
// lower case: --hub_token, HF_TOKEN, trainer.apiKey.
func wordsOf(name string) []string {
	var b strings.Builder
	var before rune
	for _, r := range name {
		if unicode.IsUpper(r) && unicode.IsLower(before) {
			b.WriteByte(' ')
		}
		if !unicode.IsLetter(r) && !unicode.IsDigit(r) {
			r = ' '
		}
		b.WriteRune(unicode.ToLower(r))
		before = r
	}
	return strings.Fields(b.String())
}

var (
	// truths are the values of switches, and the words for no value in configurations.
	truths = []string{"", "true", "false", "yes", "no", "on", "off", "none", "null", "nil", "auto", "default", "~", "{}",
		"[]", "env", Mask}
	sized = lazy.Regexp(
		`^[+-]?(0[xX][0-9a-fA-F]{1,8}|[0-9][0-9._,]*([eE][+-]?[0-9]{1,3})?)( ?[kKmMgGtTbB]([iI]?[bB])?|%)?$`)
	// reference is a value that refers to another place.
	reference = lazy.Regexp(`^(\$\{?[A-Za-z_][\w.:]*\}?|\$\{\{.*\}\}|<[A-Za-z_ -]*>|\{[\w.]*\}|%\(?\w+\)?s?)$`)
	// special is how tokenizers write a token: <s>, </s>, <|im_end|>, [PAD], <<SYS>>.
	special = lazy.Regexp(`^(<[^\s<>]*>|<<[^\s<>]*>>|\[/?[A-Za-z_0-9]+\])+$`)
	word    = lazy.Regexp(`^([a-z]{1,16}|[A-Z][a-z]{0,15}|[A-Z]{1,16})[0-9]{0,2}([_.\-/: ]([a-z]{1,16}|[A-Z][a-z]{0,15}|[A-Z]{1,16})?[0-9]{0,2})*$`)
	// random matches base64 and similar encodings, which may begin with a slash.
	random = lazy.Regexp(`^[A-Za-z0-9/+]{32,}={0,2}$`)
	file   = lazy.Regexp(`^[\w.\-]+(/[\w.\-]+)*\.(pem|key|crt|cer|pub|json|ya?ml|toml|txt|ini|cfg|env|p12|pfx|jks)$`)
)

// trivial reports whether a value is no secret under any name.
func trivial(value string) bool {
	value = strings.TrimSpace(value)
	if slices.Contains(truths, strings.ToLower(value)) || sized().MatchString(value) || reference().MatchString(value) ||
		special().MatchString(value) {
		return true
	}
	if _, err := strconv.ParseFloat(value, 64); err == nil {
		return true
	}
	return isPath(value)
}

// isPath reports whether a value is the path of a file, or the address of one.
func isPath(value string) bool {
	for _, start := range []string{"/", "./", "../", "~/"} {
		if strings.HasPrefix(value, start) {
			return !random().MatchString(value) || !mixed(value)
		}
	}
	return file().MatchString(value) || strings.Contains(value, "://") || value == "." || value == ".."
}

// isField reports whether a value is the name of a field or a piece of text. Of variables and of
// tokens only short ones are.
func isField(name, last, value string) bool {
	loud := name == strings.ToUpper(name) || last == "token"
	return isWord(value) && !(loud && len(value) >= shortestWord) &&
		!strings.Contains(strings.ToLower(value), "secret") && !strings.Contains(strings.ToLower(value), "passw")
}

// isWord reports whether a value is a word as fields and tokens are called: text, input_ids,
// eval/loss; not a long one, nor one with digits in the middle.
func isWord(value string) bool { return len(value) <= 100 && word().MatchString(value) }

// mixed reports whether a value has capital and small letters and digits.
func mixed(value string) bool {
	return strings.ContainsFunc(value, unicode.IsUpper) && strings.ContainsFunc(value, unicode.IsLower) &&
		strings.ContainsFunc(value, unicode.IsDigit)
}

var (
	// assigned is a word that gives a name its value: --token=x, +wandb.api_key=x.
	assigned = lazy.Regexp(`^([-+~]*[A-Za-z_][\w.\-/@:]*)=`)
	// option is a word that may be followed by its value.
	option = lazy.Regexp(`^--?[A-Za-z_][\w.\-]*$`)
	// several is a value that holds names and values itself.
	several = lazy.Regexp(`[,;&]\s*["']?[A-Za-z_][\w.\-]*["']?[=:]`)
)

// maskWords masks a command, word by word, and reports the values that it masked by name.
func maskWords(argv []string, found func(string)) []string {
	masked := make([]string, len(argv))
	name := "" // of the option before
	for i, word := range argv {
		if name != "" && (!isOption(word) || Certain(name) && len(word) > 2 && !strings.HasPrefix(word, "--")) &&
			Secret(name, word) {
			found(word)
			masked[i], name = Mask, ""
			continue
		}
		masked[i], name = maskWord(word, found), ""
		if option().MatchString(word) {
			name = word
		}
	}
	return masked
}

func maskWord(word string, found func(string)) string {
	if m := assigned().FindStringSubmatch(word); m != nil {
		value := word[len(m[0]):]
		list := !Secret(m[1], "word") && several().MatchString(value) && isList(value)
		if Secret(m[1], value) && !list {
			found(value)
			return m[0] + Mask
		}
	}
	return maskText(word, prose, found)
}

// isList reports whether a value consists of words, numbers and paths, as lists of settings do;
// else it may be a secret with commas.
func isList(value string) bool {
	for _, part := range strings.FieldsFunc(value, func(r rune) bool { return strings.ContainsRune(",;&=:", r) }) {
		if part = strings.Trim(part, ` "'{}[]`); !isWord(part) && !trivial(part) {
			return false
		}
	}
	return true
}

// isOption reports whether a word is an option, and so no option's value. Generated secrets may
// begin with a dash, too.
func isOption(word string) bool {
	if len(word) < 2 || word[0] != '-' || trivial(word) {
		return false
	}
	name, _, _ := strings.Cut(word, "=")
	return strings.HasPrefix(word, "--") || !(len(word) >= 16 && mixed(word)) && option().MatchString(name)
}

// maskEnv masks variables, and reports the values that it masked by name.
func maskEnv(env map[string]string, found func(string)) map[string]string {
	if env == nil {
		return nil
	}
	masked := make(map[string]string, len(env))
	for name, value := range env {
		if Secret(name, value) {
			found(value)
			masked[name] = Mask
			continue
		}
		masked[name] = maskText(value, prose, found)
	}
	return masked
}
