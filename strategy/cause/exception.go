package cause

import (
	"encoding/json"
	"strconv"
	"strings"
	"time"
)

// An Exception is the exception that ended a process, as the process itself reported it. Unlike
// in output, class, message and the exception that it was raised from are separate.
type Exception struct {
	Class     string // "torch.OutOfMemoryError"
	Message   string
	Traceback string // header and frames, without the exception's own line
	// Inner is the exception that it was raised from, or during whose handling it was raised;
	// nil: none.
	Inner    *Exception
	Explicit bool // Inner was given by "raise … from"
	Caught   bool // the frame that raised it had caught Inner
}

// chainLimit bounds the search for the reason of an exception along its chain.
const chainLimit = 8

// LastWord is the finding of the exception that ended a process: by its own class and message or,
// if those only pass on another exception, by the one that it was raised from.
func LastWord(e Exception) Finding {
	own := e.alone()
	inner := &e
	for range chainLimit {
		outer := inner
		if inner = outer.Inner; inner == nil || own.Code != UserError && own.Weight != WeightSymptom {
			break
		}
		how := implicit
		if outer.Explicit {
			how = explicit
		}
		from := inner.alone()
		// A consequence of another rank's end is not a mistake of the handler.
		victim := own.Weight == WeightSymptom && own.Code != UserError && from.Code.OutOfMemory()
		if !victim && !raisedFrom(how, outer.Class, outer.line(), inner.line(), outer.Caught) {
			break
		}
		if from.Code != UserError {
			return from
		}
	}
	return own
}

// line formats the exception as the first line of its last message.
func (e *Exception) line() string {
	first, _, _ := strings.Cut(strings.TrimLeft(e.Message, " \t\r\n"), "\n")
	if first = strings.TrimRight(first, " \r"); first == "" {
		return e.Class
	}
	return e.Class + ": " + first
}

// alone is the finding of the exception by itself. Its whole message counts if the first line
// names a cause, or announces another process's exception; otherwise it may contain any text.
func (e *Exception) alone() Finding {
	if !exceptionName(e.Class) {
		named := *e
		named.Class = "Exception" // a class may have any name
		found := named.alone()
		found.Text = strings.Replace(found.Text, named.Class, e.Class, 1)
		return found
	}
	head := strings.TrimRight(e.Traceback, "\r\n")
	if head != "" {
		head += "\n"
	}
	found := scanWord(head + e.line() + "\n")
	first, rest, more := strings.Cut(strings.TrimLeft(e.Message, " \t\r\n"), "\n")
	switch {
	case !more:
	case passesOn(e.Class, first):
		if inner := passedOn(first, rest); inner.Code != UserError {
			found = inner
		}
	case found.Code != UserError:
		found = scanWord(head + e.line() + "\n" + rest)
	}
	if found.Text == "" {
		found.Text = e.line()
	}
	found.Raised, found.Weight, found.Rank = true, found.Weight.Final(), -1
	found.Remarks = Remarks(found.Code, found.Text)
	return found
}

// carriers begin the messages that contain the traceback of another process or thread.
var carriers = []string{
	"Caught ",              // torch._utils.ExceptionWrapper: DataLoader, DataParallel
	"-- Process ",          // torch.multiprocessing.spawn
	"root error(s) found.", // TensorFlow
	" raised:",             // torch._dynamo's backends
	"LoweringException",    // torch._inductor
	"(pid=",                // Ray: "ray::f() (pid=12, ip=10.0.0.1)"
}

// passesOn reports whether an exception's message contains another one's traceback.
func passesOn(class, first string) bool {
	return !isProgramError(class) && (contains(first, carriers) || wrapper(class, first))
}

// passedOn is the exception in a message that passes it on: the one with the class that the first
// line names, or else the last one.
func passedOn(first, rest string) Finding {
	named := ""
	if words, ok := strings.CutPrefix(first, "Caught "); ok {
		named, _, _ = strings.Cut(words, " ")
	}
	return lastFinding(rest, false, func(f Finding) bool {
		class, _, ok := exception(f.Text)
		return !f.Quoted && (named == "" || !ok || simpleName(class) == named)
	})
}

// scanWord is the finding in the text of one exception.
func scanWord(text string) Finding {
	return lastFinding(text, true, func(Finding) bool { return true })
}

// lastFinding is the last finding in a text that counts and is not a plain error of the job's
// code, or else the last one that counts. whole: the text is one exception.
func lastFinding(text string, whole bool, counts func(Finding) bool) Finding {
	last := Finding{Code: UserError, Phase: NoPhase}
	scanner := NewScanner("error.json")
	scanner.whole = whole
	scanner.OnFinding = func(f Finding) {
		if counts(f) && (f.Code != UserError || last.Code == UserError) {
			last = f
		}
	}
	_, _ = scanner.Write([]byte(text)) // it never fails
	scanner.Close()
	return last
}

// ErrorFile reads error.json, which @record of torch.distributed.elastic writes when a rank
// raises. The exception's type and message are in message, the traceback in extraInfo; older
// writers give message as plain text. It returns false for another file.
func ErrorFile(text []byte) (s Finding, at time.Time, ok bool) {
	var outer struct {
		Message   json.RawMessage `json:"message"`
		Timestamp json.Number     `json:"timestamp"`
	}
	if json.Unmarshal(text, &outer) != nil || len(outer.Message) == 0 {
		return s, at, false
	}
	var inner struct {
		Message   string `json:"message"`
		ExtraInfo struct {
			Callstack string `json:"py_callstack"`
			Timestamp string `json:"timestamp"`
		} `json:"extraInfo"`
	}
	if json.Unmarshal(outer.Message, &inner) != nil {
		if json.Unmarshal(outer.Message, &inner.Message) != nil {
			return s, at, false
		}
	}
	seconds, _ := strconv.ParseInt(inner.ExtraInfo.Timestamp, 10, 64)
	if seconds == 0 {
		seconds, _ = outer.Timestamp.Int64()
	}
	s = LastWord(Recorded(inner.Message, inner.ExtraInfo.Callstack))
	return s, time.Unix(seconds, 0).UTC(), true
}

// Recorded returns the exception in a file, from its simple name and message, and from the
// traceback that Python prints, which includes the exceptions that it was raised from.
func Recorded(message, callstack string) Exception {
	e := split(message)
	if callstack == "" {
		return e
	}
	stack := strings.TrimRight(callstack, "\r\n ")
	if above, ok := strings.CutSuffix(stack, strings.TrimRight(message, "\r\n ")); ok {
		// The traceback names the module as well.
		start := strings.LastIndexByte(above, '\n') + 1
		e.Class = above[start:] + e.Class
		stack = above[:start]
	} else {
		stack, e = ended(stack)
	}
	e.Traceback = stack
	e.Inner, e.Explicit, e.Caught = cutInner(&e)
	return e
}

// split reads "Class: message".
func split(line string) Exception {
	if class, message, ok := strings.Cut(line, ": "); ok && exceptionName(class) {
		return Exception{Class: class, Message: message}
	}
	if exceptionName(line) {
		return Exception{Class: line}
	}
	return Exception{Class: "Exception", Message: line}
}

// ended splits a printed traceback before the line that names its exception: the first line after
// the last frame that is not indented.
func ended(stack string) (head string, e Exception) {
	end := strings.LastIndex(stack, "\n  File ") + 1
	for end < len(stack) {
		line, _, _ := strings.Cut(stack[end:], "\n")
		if line != "" && line[0] != ' ' && !strings.HasPrefix(line, "Traceback (most") {
			break
		}
		end = min(len(stack), end+len(line)+1)
	}
	return stack[:end], split(stack[end:])
}

// cutInner splits the traceback of an exception that was raised from another one, and returns the
// other one.
func cutInner(e *Exception) (inner *Exception, explicitly, caught bool) {
	at, how := -1, noLink
	for _, l := range links {
		if i := strings.LastIndex(e.Traceback, "\n"+l.words+"\n"); i > at {
			at, how = i, l.link
		}
	}
	if at < 0 {
		return nil, false, false
	}
	rest := strings.TrimRight(e.Traceback[:at], "\r\n ")
	_, own, _ := strings.Cut(e.Traceback[at+1:], "\n")
	e.Traceback = strings.TrimLeft(own, "\r\n ")
	head, found := ended(rest)
	found.Traceback = head
	found.Inner, found.Explicit, found.Caught = cutInner(&found)
	_, last := endsOf(e.Traceback)
	first, _ := endsOf(found.Traceback)
	return &found, how == explicit, last == first
}

// endsOf returns the outermost and the innermost frame of a printed traceback.
func endsOf(stack string) (first, last frame) {
	for line := range strings.Lines(stack) {
		if f, ok := parseFrame(strings.TrimRight(line, "\r\n")); ok {
			if first.file == "" {
				first = f
			}
			last = f
		}
	}
	return first, last
}
