package job

import (
	"regexp"
	"strings"
)

// A word is one word of a shell's command line.
type word struct {
	text string
	// bare is how many bytes at the start of text were not quoted.
	bare int
}

// throughShell is the hint for what only a shell can do.
const throughShell = `quote it, or use program = ["sh", "-c", "…"]`

// split cuts a command line into words as a POSIX shell does: blanks, quotes,
// backslashes. What a shell would do beyond that is refused, because nothing
// here would do it. The error is a *UsageError.
func split(line string) ([]word, error) {
	s := splitter{line: strings.TrimRight(line, " \t\r\n")}
	for s.at < len(s.line) {
		if err := s.step(); err != nil {
			return nil, err
		}
	}
	s.end()
	return s.words, nil
}

// A splitter is a command line on its way to words.
type splitter struct {
	line  string
	at    int
	words []word
	// text is the word being read, open whether there is one (it may be
	// empty: ""), quoted whether a quote or a backslash was in it yet.
	text   strings.Builder
	open   bool
	quoted bool
	bare   int
}

// step reads one unquoted character, or one quotation.
func (s *splitter) step() error {
	c := s.line[s.at]
	switch c {
	case ' ', '\t', '\r':
		s.end()
	case '\n':
		// The end of the line is trimmed: another command follows.
		if len(s.words) > 0 || s.open {
			return s.refuse("a line break ends the command", "write it on one line, or end the line with a backslash")
		}
	case '\'':
		return s.single()
	case '"':
		return s.double()
	case '\\':
		return s.escape()
	case '|', '&', ';', '<', '>', '(', ')', '$', '`', '*':
		return s.refuseOperator(c)
	case '#', '~':
		// A home directory can also start the value of an assignment.
		value := c == '~' && !s.quoted && assignment.FindString(s.text.String()) == s.text.String()
		if !s.open || value {
			return s.refuseStart(c)
		}
		s.add(c)
	default:
		s.add(c)
	}
	s.at++
	return nil
}

// add takes an unquoted character into the word.
func (s *splitter) add(c byte) {
	s.open = true
	s.text.WriteByte(c)
	if !s.quoted {
		s.bare++
	}
}

// end closes the word, if there is one.
func (s *splitter) end() {
	if s.open {
		s.words = append(s.words, word{s.text.String(), s.bare})
	}
	s.text.Reset()
	s.open, s.quoted, s.bare = false, false, 0
}

// single reads '…', in which nothing is special.
func (s *splitter) single() error {
	length := strings.IndexByte(s.line[s.at+1:], '\'')
	if length < 0 {
		return usage("add the other quote", "a single quote is not closed")
	}
	s.open, s.quoted = true, true
	s.text.WriteString(s.line[s.at+1 : s.at+1+length])
	s.at += length + 2
	return nil
}

// double reads "…", in which a backslash escapes few characters, and what a
// shell would replace is refused.
func (s *splitter) double() error {
	s.open, s.quoted = true, true
	for s.at++; s.at < len(s.line); s.at++ {
		switch c := s.line[s.at]; c {
		case '"':
			s.at++
			return nil
		case '$', '`':
			return s.refuseOperator(c)
		case '\\':
			if s.at+1 == len(s.line) {
				continue
			}
			switch next := s.line[s.at+1]; next {
			case '$', '`', '"', '\\':
				s.text.WriteByte(next)
			case '\n':
			default:
				s.text.WriteByte('\\')
				s.text.WriteByte(next)
			}
			s.at++
		default:
			s.text.WriteByte(c)
		}
	}
	return usage("add the other quote", "a double quote is not closed")
}

// escape reads a backslash and the character that it quotes. With a line break
// it joins two lines.
func (s *splitter) escape() error {
	if s.at+1 == len(s.line) {
		return usage("remove it", "a backslash at the end quotes nothing")
	}
	next := s.line[s.at+1]
	s.at += 2
	if next == '\n' {
		return nil
	}
	s.open, s.quoted = true, true
	s.text.WriteByte(next)
	return nil
}

// refuse says what a shell would do here, and what to write instead.
func (s *splitter) refuse(what, hint string) error {
	return usage(hint, "%s, and no shell runs this line", what)
}

// refuseStart refuses what is special at the start of a word.
func (s *splitter) refuseStart(c byte) error {
	if c == '~' {
		return s.refuse("~ stands for a home directory", "write the path out, or quote the ~")
	}
	return s.refuse("# starts a comment", "remove it, or quote the #")
}

// refuseOperator refuses a shell's operator, with a hint for the usual reasons
// to have one.
func (s *splitter) refuseOperator(c byte) error {
	two := s.line[s.at:min(s.at+2, len(s.line))]
	switch {
	case two == "&&" || c == ';':
		s.end()
		return s.refuse(map[bool]string{true: "&&", false: ";"}[two == "&&"]+" joins commands", s.insteadOfJoin())
	case two == "||":
		return s.refuse("|| joins commands", throughShell)
	case c == '|':
		return s.refuse("| pipes the output", throughShell+"; gpurun keeps each rank's output in a file of its own")
	case c == '&':
		return s.refuse("& runs the command in the background", throughShell)
	case c == '<' || c == '>':
		return s.refuse(string(c)+" redirects", throughShell+"; gpurun keeps each rank's output in a file of its own")
	case c == '$':
		return s.refuse("$ stands for a variable or a command", "write the value, or "+throughShell)
	case c == '`':
		return s.refuse("` runs a command", "write the value, or "+throughShell)
	case c == '*':
		return s.refuse("* stands for file names", "write the names, or "+throughShell)
	}
	return s.refuse(string(c)+" groups commands", throughShell)
}

// insteadOfJoin looks at the command before && or ; and says what job setting
// does the same.
func (s *splitter) insteadOfJoin() string {
	if len(s.words) == 2 {
		switch s.words[0].text {
		case "cd":
			return "use job.workdir for the directory"
		case "source", ".":
			return "use job.python for the environment's interpreter"
		case "export":
			return "use job.env for variables"
		}
	}
	return throughShell
}

// assignment is NAME= at the start of a word.
var assignment = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*=`)

// assigns reports whether the word is NAME=value as a shell sees it: with the
// name not quoted.
func (w word) assigns() bool {
	name := assignment.FindString(w.text)
	return name != "" && len(name) <= w.bare
}

// takeAssignments moves the leading NAME=value words into a map.
func takeAssignments(words []word) (env map[string]string, rest []string) {
	for len(words) > 0 && words[0].assigns() {
		if env == nil {
			env = map[string]string{}
		}
		name, value, _ := strings.Cut(words[0].text, "=")
		env[name] = value
		words = words[1:]
	}
	for _, w := range words {
		rest = append(rest, w.text)
	}
	return env, rest
}
