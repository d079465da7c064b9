package cause

import (
	"regexp"
	"strings"
	"sync"
)

// requiredArguments is the message of argparse.
var requiredArguments = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`error: the following arguments are required: (.+)$`)
})

// MissingArguments lists the arguments that a program requires and did not get, by its error.
func MissingArguments(text string) []string {
	m := requiredArguments().FindStringSubmatch(text)
	if m == nil {
		return nil
	}
	return strings.Split(m[1], ", ")
}

// LacksModule reports whether an error is that the interpreter has no module of a name.
func LacksModule(text string) bool { return strings.HasPrefix(text, "ModuleNotFoundError") }
