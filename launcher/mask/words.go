package mask

import (
	"github.com/gpurun/gpurun/launcher/lazy"
	"strings"
)

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
		if name != "" && (!isOption(word) || Certain(name) && len(word) > 2 && !strings.HasPrefix(word, "--")) && Secret(name, word) {
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
