package edit

import (
	"strings"

	"github.com/pelletier/go-toml/v2"
)

// DecodeTOML parses TOML into generic values: map[string]any, []any, string, int64,
// float64, bool and times. The fault is the position at which the text is not TOML; what is the
// kind of the file, "a train.toml".
func DecodeTOML(text []byte, what string) (map[string]any, *FileFault) {
	body, root := withoutBOM(text), map[string]any{}
	err := toml.Unmarshal(body, &root)
	if err == nil {
		return root, nil
	}
	_, again := tomlTree(body)
	at, message := tomlError(body, again, err)
	f := faultAt(text, lineStarts(text), at+len(text)-len(body))
	f.Message = "not TOML: " + message
	return nil, &f
}

// lowerFirst turns another package's message into the end of a sentence.
func lowerFirst(s string) string {
	s = strings.TrimSuffix(s, ".")
	if s == "" {
		return s
	}
	return strings.ToLower(s[:1]) + s[1:]
}
