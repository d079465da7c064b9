package cause

import (
	"encoding/json"
	"strconv"
	"strings"
	"time"
)

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

// Recorded is the exception in a file: its simple name and message, and the traceback that Python
// prints, with the exceptions that it was raised from above it.
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

// ended splits a printed traceback before the line that names its exception: the first
// one after the last frame that is not indented.
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

// cutInner cuts the exception off that another one was raised from, from the traceback of both.
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

// endsOf are the outermost and the innermost frame of a printed traceback.
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
