package cause

import (
	"regexp"
	"strconv"
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

// ExitIn is the exit code in a report that a process ended; 0: none.
func ExitIn(text string) int {
	for _, words := range []string{"xit code ", "xit status ", "exitcode  : ", "(exitcode: ", "return code = "} {
		if _, rest, ok := strings.Cut(text, words); ok {
			number, _ := leadingDigits(rest, 3)
			if n, err := strconv.Atoi(number); err == nil {
				return n
			}
		}
	}
	return 0
}

// LacksName reports whether an error is that a module has no object of a name.
func LacksName(text string) bool {
	return strings.HasPrefix(text, "AttributeError: module '") ||
		strings.HasPrefix(text, "ImportError: cannot import name '")
}

// FolderVariable describes the variable by which a job moves a folder: for a path of wandb or of
// Hugging Face's cache theirs, else that of temporary files.
func FolderVariable(path string) string {
	switch {
	case strings.Contains(path, "/wandb/"):
		return "WANDB_DATA_DIR and WANDB_DIR"
	case strings.Contains(path, "/huggingface/"):
		return "HF_HOME"
	}
	return "TMPDIR for temporary files"
}

// LacksModule reports whether an error is that the interpreter has no module of a name.
func LacksModule(text string) bool { return strings.HasPrefix(text, "ModuleNotFoundError") }
