package commandline

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode"

	"mvdan.cc/sh/v3/syntax"

	"github.com/gpurun/gpurun/launcher/errext"
	"github.com/gpurun/gpurun/launcher/lazy"
)

// A Word is one word of a shell's command line.
type Word struct {
	Text string
	// bare is the number of bytes at the start of Text that were not quoted.
	bare int
	// Source is the word as written, if it contains a variable. A value with blanks splits a word into
	// several: More marks all but the first.
	Source string
	More   bool
}

// A ShellError is the error for syntax that only a shell could execute, or that no shell would accept.
type ShellError struct {
	Offset  int // in bytes from the start of the line
	Message string
}

func (e *ShellError) Error() string { return e.Message }

// throughShell is the hint for syntax that only a shell can execute.
const throughShell = `quote it, or use program = ["sh", "-c", "…"]`

// Expand splits a command line into words as a POSIX shell does: blanks, quotes, backslashes. Further shell
// syntax is refused, because gpurun would not execute it: the error is a *ShellError with a hint.
//
// Expand replaces variables as a shell does: $NAME, ${NAME} and ${NAME:-word}, split at blanks if not quoted.
// It does not expand file names in them. If lookup is nil there are no variables. used are the names in the
// line, sorted.
func Expand(line string, lookup func(name string) (value string, set bool)) (words []Word, used []string, err error) {
	s := splitter{line: strings.TrimRight(line, " \t\r\n"), lookup: lookup, used: map[string]bool{}, assigning: true}
	parser := syntax.NewParser(syntax.Variant(syntax.LangPOSIX))
	for w, err := range parser.WordsSeq(strings.NewReader(s.line)) {
		if err != nil {
			return nil, nil, s.unparsed(err)
		}
		if err := s.add(w); err != nil {
			return nil, nil, err
		}
	}
	if err := s.gap(len(s.line)); err != nil {
		return nil, nil, err
	}
	return s.words, slices.Sorted(maps.Keys(s.used)), nil
}

// A splitter is the state while a command line is split into words.
type splitter struct {
	line  string
	end   int // end of the last word, in bytes
	words []Word

	lookup func(string) (string, bool)
	used   map[string]bool
	// variables counts the variables that were replaced.
	variables int
	// assigning: all words so far are NAME=value. These are not split at blanks, and set variables for later
	// words.
	assigning bool
	assigned  Environ
}

// add adds a word of the line, if its value is known without a shell.
func (s *splitter) add(w *syntax.Word) error {
	start := int(w.Pos().Offset())
	if err := s.gap(start); err != nil {
		return err
	}
	word := literal{splitter: s}
	if s.assigning = s.assigning && assigns(w); !s.assigning {
		s.assigned = nil
	}
	at, first, variables := start, len(s.words), s.variables
	for _, part := range w.Parts {
		next := int(part.Pos().Offset())
		if i := strings.IndexByte(s.line[at:next], '#'); i >= 0 {
			// The parser reads a comment that ends with a backslash as a part of a word.
			return s.refuse(at+i, "# starts a comment", "remove it, or quote the #")
		}
		at = int(part.End().Offset())
		if err := word.part(part, false); err != nil {
			return err
		}
	}
	word.flush()
	s.end = int(w.End().Offset())
	for i := first; i < len(s.words) && s.variables > variables; i++ {
		s.words[i].Source, s.words[i].More = s.line[start:s.end], i > first
	}
	if s.assigning {
		s.assigned, _ = Assignments(s.words)
	}
	return nil
}

// gap checks the text between two words, which the parser skips. It refuses a line break, which ends a
// command, and a comment. Leading line breaks are allowed.
func (s *splitter) gap(next int) error {
	for at := s.end; at < next; at++ {
		switch c := s.line[at]; {
		case c == '\\':
			at++ // also skip the line break after it
		case c == '#':
			return s.refuse(at, "# starts a comment", "remove it, or quote the #")
		case c == '\n' && len(s.words) > 0:
			return s.refuse(at, "a line break ends the command", "write it on one line, or end the line with a backslash")
		case c != ' ' && c != '\t' && c != '\r' && c != '\n':
			return nil // the parser failed in this word
		}
	}
	return nil
}

// unparsed explains why the parser failed.
func (s *splitter) unparsed(err error) error {
	var parse syntax.ParseError
	var lang syntax.LangError
	at := s.end
	switch {
	case errors.As(err, &parse):
		at = int(parse.Pos.Offset())
	case errors.As(err, &lang):
		at = int(lang.Pos.Offset())
	}
	at = max(s.end, min(at, len(s.line)))
	if err := s.gap(at); err != nil {
		return err
	}
	if i := strings.IndexAny(s.line[s.end:at], "$`"); i >= 0 && (i == 0 || s.line[s.end+i-1] != '\\') {
		return s.operator(s.end + i) // what is wrong is inside of it
	}
	switch {
	case at == len(s.line):
	case s.line[at] == '\'':
		return s.fail(at, "a single quote is not closed", "add the other quote")
	case s.line[at] == '"':
		return s.fail(at, "a double quote is not closed", "add the other quote")
	case strings.IndexByte("|&;<>()$`", s.line[at]) >= 0:
		return s.operator(at)
	case at+1 < len(s.line) && s.line[at+1] == '(': // an extended glob pattern
		return s.operator(at + 1)
	case s.line[at] >= '0' && s.line[at] <= '9':
		// The number of a stream before a redirection.
		if n := strings.IndexAny(s.line[at:], "<>"); n > 0 && strings.Trim(s.line[at:at+n], "0123456789") == "" {
			return s.operator(at + n)
		}
	}
	return s.fail(at, fmt.Sprintf("no shell reads this line: %v", err), throughShell)
}

// fail returns an error at a place of the line.
func (s *splitter) fail(at int, message, hint string) error {
	return errext.WithHint(&ShellError{Offset: at, Message: message}, hint)
}

// refuse returns an error that names what a shell would do here, and what to write instead.
func (s *splitter) refuse(at int, what, hint string) error {
	return s.fail(at, what+", and no shell runs this line", hint)
}

// operator refuses a shell's operator, with a hint for the usual reasons to have
// one.
func (s *splitter) operator(at int) error {
	const ownFiles = throughShell + "; gpurun keeps each rank's output in a separate file"
	c, two := s.line[at], s.line[at:min(at+2, len(s.line))]
	switch {
	case two == "&&":
		return s.refuse(at, "&& joins commands", s.insteadOfJoin())
	case c == ';':
		return s.refuse(at, "; joins commands", s.insteadOfJoin())
	case two == "||":
		return s.refuse(at, "|| joins commands", throughShell)
	case c == '|':
		return s.refuse(at, "| pipes the output", ownFiles)
	case c == '&':
		return s.refuse(at, "& runs the command in the background", throughShell)
	case c == '<' || c == '>':
		return s.refuse(at, string(c)+" redirects", ownFiles)
	case two == "$(":
		return s.refuse(at, "$( runs a command", "write the value, or "+throughShell)
	case c == '$' && s.lookup != nil:
		return s.refuse(at, "$ stands for more than the value of a variable",
			"write $NAME, ${NAME} or ${NAME:-word}, or "+throughShell)
	case c == '$':
		return s.refuse(at, "$ stands for a variable or a command", "write the value, or "+throughShell)
	case c == '`':
		return s.refuse(at, "` runs a command", "write the value, or "+throughShell)
	}
	return s.refuse(at, string(c)+" groups commands", throughShell)
}

// insteadOfJoin returns the job setting that replaces the command before && or ;.
func (s *splitter) insteadOfJoin() string {
	if len(s.words) == 2 {
		switch s.words[0].Text {
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

// A literal is the state while the text of a word is built.
type literal struct {
	*splitter
	text   strings.Builder
	begun  bool // there is a word, maybe an empty one
	quoted bool // it had a quote, a backslash or a variable
	bare   int
	// inDefault: it is the word in ${NAME:-word}, which is split at unquoted blanks.
	inDefault bool
}

// flush ends a word.
func (w *literal) flush() {
	if w.begun {
		w.words = append(w.words, Word{Text: w.text.String(), bare: w.bare})
	}
	w.text.Reset()
	w.begun, w.quoted, w.bare = false, false, 0
}

// part adds a part of a word. It refuses everything but literals and variables with a known value; no other
// function does.
func (w *literal) part(part syntax.WordPart, inQuotes bool) error {
	at := int(part.Pos().Offset())
	switch part := part.(type) {
	case *syntax.Lit:
		return w.lit(part, inQuotes)
	case *syntax.SglQuoted:
		if part.Dollar {
			return w.operator(at)
		}
		if w.inDefault && inQuotes {
			return w.refuse(at, "a quote within a quoted ${…} means different things to different shells", throughShell)
		}
		w.begun, w.quoted = true, true
		w.text.WriteString(part.Value)
		return nil
	case *syntax.DblQuoted:
		if part.Dollar {
			return w.operator(at)
		}
		if w.inDefault && inQuotes {
			return w.refuse(at, "a quote within a quoted ${…} means different things to different shells", throughShell)
		}
		w.begun, w.quoted = true, true
		for _, inner := range part.Parts {
			if err := w.part(inner, true); err != nil {
				return err
			}
		}
		return nil
	case *syntax.ParamExp:
		if w.lookup != nil {
			w.variables++
			return w.variable(part, inQuotes)
		}
	}
	return w.operator(at)
}

// lit adds plain text, in which backslashes quote: any character outside of quotes, only special characters
// inside.
func (w *literal) lit(l *syntax.Lit, inQuotes bool) error {
	at := int(l.Pos().Offset()) // exact only up to the first continued line
	for i := 0; i < len(l.Value); i++ {
		c := l.Value[i]
		switch {
		case w.inDefault && !inQuotes && !w.assigning && isBlank(c):
			w.flush()
			w.quoted = true
			continue
		case w.inDefault && !inQuotes && (c == '\'' || c == '"'):
			return w.refuse(at+i, "a quote within ${…} is not closed", throughShell)
		case c == '\\' && i+1 == len(l.Value) && !inQuotes:
			return w.fail(at+i, "a backslash at the end quotes nothing", "remove it")
		case c == '\\' && i+1 < len(l.Value) && l.Value[i+1] == '\n':
			i++ // a continued line
			continue
		case c == '\\' && i+1 < len(l.Value) && (!inQuotes || strings.IndexByte("$`\"\\", l.Value[i+1]) >= 0 || w.inDefault && l.Value[i+1] == '}'):
			i++
			w.begun, w.quoted = true, true
			w.text.WriteByte(l.Value[i])
			continue
		case inQuotes && c != '$':
		case c == '$':
			return w.refuse(at+i, "$ stands for a variable or a command", "write the value, or "+throughShell)
		case c == '*':
			return w.refuse(at+i, "* stands for file names", "write the names, or "+throughShell)
		case c == '~' && !w.quoted && assignment().FindString(w.text.String()) == w.text.String():
			// A home directory, which can also start the value of an assignment.
			return w.refuse(at+i, "~ stands for a home directory", "write the path out, or quote the ~")
		}
		w.begun = true
		w.text.WriteByte(c)
		if !w.quoted {
			w.bare++
		}
	}
	return nil
}

// assignment is NAME= at the start of a word.
var assignment = lazy.Regexp(`^[A-Za-z_][A-Za-z0-9_]*=`)

// assigns reports whether the word is NAME=value as a shell sees it: with the
// name not quoted.
func (w Word) assigns() bool {
	name := assignment().FindString(w.Text)
	return name != "" && len(name) <= w.bare
}

// Assignments takes the leading NAME=value words off; env is nil where there are none.
func Assignments(words []Word) (env Environ, rest []string) {
	for len(words) > 0 && words[0].assigns() {
		if env == nil {
			env = Environ{}
		}
		name, value, _ := strings.Cut(words[0].Text, "=")
		env[name] = value
		words = words[1:]
	}
	for _, w := range words {
		rest = append(rest, w.Text)
	}
	return env, rest
}

// A variable has a name, not a number or a sign.
var variableName = lazy.Regexp(`^[A-Za-z_][A-Za-z0-9_]*$`)

// variable puts a variable's value into the word: $NAME, ${NAME}, ${NAME:-word}.
func (w *literal) variable(p *syntax.ParamExp, inQuotes bool) error {
	at := int(p.Pos().Offset())
	if p.Param == nil || !variableName().MatchString(p.Param.Value) || !isPlain(p) {
		return w.operator(at)
	}
	name := p.Param.Value
	value, set := w.valueOf(name)
	w.used[name] = true
	switch {
	case p.Exp != nil && value == "":
		return w.otherwise(p.Exp.Word, inQuotes)
	case !set:
		return w.fail(at, "$"+name+" is not set",
			fmt.Sprintf("set it in job.env or in gpurun's environment, or write ${%s:-value}", name))
	}
	w.put(value, inQuotes)
	return nil
}

// isPlain reports whether nothing is done with a variable's value, but for a word in its place
// where it is empty or not set.
func isPlain(p *syntax.ParamExp) bool {
	return !p.Excl && !p.Length && !p.Width && !p.IsSet && p.Flags == nil && p.NestedParam == nil && p.Index == nil &&
		p.Slice == nil && p.Repl == nil &&
		p.Names == 0 && len(p.Modifiers) == 0 && (p.Exp == nil || p.Exp.Op == syntax.DefaultUnsetOrNull)
}

// valueOf looks a variable up; before the command, those that stand in the line count.
func (s *splitter) valueOf(name string) (string, bool) {
	if value, set := s.assigned[name]; set {
		return value, true
	}
	return s.lookup(name)
}

// otherwise takes the word of ${NAME:-word}.
func (w *literal) otherwise(word *syntax.Word, inQuotes bool) error {
	if word == nil {
		return nil
	}
	before := w.inDefault
	w.inDefault, w.quoted = true, true
	defer func() { w.inDefault = before }()
	for i, part := range word.Parts {
		if l, literal := part.(*syntax.Lit); i == 0 && literal && !inQuotes && strings.HasPrefix(l.Value, "~") {
			return w.refuse(int(l.Pos().Offset()), "~ stands for a home directory", "write the path out, or quote the ~")
		}
		if err := w.part(part, inQuotes); err != nil {
			return err
		}
	}
	return nil
}

// put adds a value to the word. Outside of quotes blanks cut it, also off what stands
// before and behind it.
func (w *literal) put(value string, inQuotes bool) {
	w.quoted = true // what follows names no variable of the command
	if inQuotes || w.assigning {
		w.begun = true
		w.text.WriteString(value)
		return
	}
	for value != "" {
		end := strings.IndexFunc(value, func(r rune) bool { return r < 0x80 && isBlank(byte(r)) })
		if end < 0 {
			end = len(value)
		}
		if end > 0 {
			w.begun = true
			w.text.WriteString(value[:end])
			value = value[end:]
			continue
		}
		w.flush()
		w.quoted = true
		value = strings.TrimLeft(value, " \t\n")
	}
}

func isBlank(c byte) bool { return c == ' ' || c == '\t' || c == '\n' }

// assigns reports whether a word begins with NAME= that is not quoted.
func assigns(w *syntax.Word) bool {
	if len(w.Parts) == 0 {
		return false
	}
	first, literal := w.Parts[0].(*syntax.Lit)
	return literal && assignment().MatchString(first.Value)
}

// Paste joins words to a command that people paste into a shell. Every command that gpurun prints is made by it.
func Paste(words ...string) string {
	pasted := make([]string, len(words))
	for i, w := range words {
		pasted[i] = PasteWord(w)
	}
	return strings.Join(pasted, " ")
}

// PasteWord quotes one word for every POSIX shell, if necessary. A word with characters that a terminal does not show
// stays on one line, as gpurun's messages escape these.
func PasteWord(w string) string {
	hidden := func(r rune) bool { return !unicode.IsPrint(r) }
	if strings.ContainsFunc(w, hidden) && !strings.HasSuffix(w, "\n") { // $() removes line breaks at the end
		return `"$(printf '` + printfFormat(w) + `')"`
	}
	return QuoteWord(w)
}

// PastePath quotes a path. A program would take one that begins with a dash for an option.
func PastePath(path string) string {
	if strings.HasPrefix(path, "-") {
		path = "./" + path
	}
	return PasteWord(path)
}

// printfFormat escapes a text for printf(1) within single quotes.
func printfFormat(text string) string {
	var b strings.Builder
	for i := range len(text) {
		switch c := text[i]; {
		case c == '%':
			b.WriteString("%%")
		case c < ' ' || c >= 0x7f || c == '\'' || c == '\\':
			fmt.Fprintf(&b, `\%03o`, c)
		case i == 0 && c == '-': // printf would take it for an option
			b.WriteString(`\055`)
		default:
			b.WriteByte(c)
		}
	}
	return b.String()
}
