package format

import "strings"

// An Option is one argument of a choice, and its value where it has one.
type Option struct {
	Name  string
	Value string
	Bare  bool
	// Override: a word name=value.
	Override bool
}

// OptionsOf reads the words of a choice: a word with a leading dash is an
// argument, the word behind it its value. Other words with = are overrides.
func OptionsOf(words []string) []Option {
	var options []Option
	for _, word := range words {
		head, value, equals := strings.Cut(word, "=")
		switch {
		case strings.HasPrefix(word, "-") && equals:
			options = append(options, Option{Name: head, Value: value})
		case equals && (len(options) == 0 || !options[len(options)-1].Bare):
			options = append(options, Option{Name: head, Value: value, Override: true})
		case strings.HasPrefix(word, "-") || len(options) == 0:
			options = append(options, Option{Name: word, Bare: true})
		default:
			last := &options[len(options)-1]
			last.Value, last.Bare = word, false
		}
	}
	return options
}
