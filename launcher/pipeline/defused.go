package pipeline

import (
	"io"
	"regexp"
)

// Words is w for what gpurun says to people, without anything that the system that runs it
// would obey.
func Words(w io.Writer, getenv func(string) string) io.Writer {
	if onGitHub(getenv) {
		return defused{w}
	}
	return w
}

func onGitHub(getenv func(string) string) bool { return getenv("GITHUB_ACTIONS") == "true" }

// defused is a writer that lets GitHub's runner find no command of its own in what it is
// given: neither "::add-mask::…", which begins a line, nor "##[add-mask]…", which may stand
// anywhere in one. A line of a job's traceback can look like that.
type defused struct{ w io.Writer }

var (
	command    = regexp.MustCompile(`(?m)((?:^|\r)[\t\v\f\p{Z}]*)::`)
	oldCommand = regexp.MustCompile(`##\[`)
)

// Write writes p, whose lines are whole.
func (d defused) Write(p []byte) (int, error) {
	safe := oldCommand.ReplaceAll(command.ReplaceAll(p, []byte(`$1\::`)), []byte(`##\[`))
	if _, err := d.w.Write(safe); err != nil {
		return 0, err
	}
	return len(p), nil
}
