package cause

import "strings"

// An Exception is what a process itself told of the exception that ended it. Unlike
// output it is no text that somebody may have quoted: class, message and what it was
// raised from are known apart.
type Exception struct {
	Class     string // "torch.OutOfMemoryError"
	Message   string
	Traceback string // header and frames, without the exception's own line
	// Inner is what it was raised from, or raised in the handling of; nil for nothing.
	Inner *Exception
	// Explicit says that Inner was given by "raise … from".
	Explicit bool
	// Caught says that the frame that raised it is the one that had caught Inner.
	Caught bool
}

// chainLimit bounds how far back the reason of an exception is looked for.
const chainLimit = 8

// LastWord is what the exception that ended a process means: its own class and words
// or, where those only pass on another one, what it was raised from.
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
		// What another rank's end brings about is no handler's mistake.
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

// line is the exception as the first line of its last words.
func (e *Exception) line() string {
	first, _, _ := strings.Cut(strings.TrimLeft(e.Message, " \t\r\n"), "\n")
	if first = strings.TrimRight(first, " \r"); first == "" {
		return e.Class
	}
	return e.Class + ": " + first
}

// alone is what the exception means by itself. The message counts as a whole where its
// first line names a cause, or says that the words of another process follow; else it
// may hold any text.
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

// carriers begin the messages that hold the traceback of another process or thread.
var carriers = []string{
	"Caught ",              // torch._utils.ExceptionWrapper: DataLoader, DataParallel
	"-- Process ",          // torch.multiprocessing.spawn
	"root error(s) found.", // TensorFlow
	" raised:",             // torch._dynamo's backends
	"LoweringException",    // torch._inductor
	"(pid=",                // Ray: "ray::f() (pid=12, ip=10.0.0.1)"
}

// passesOn reports whether an exception's message holds another one's traceback.
func passesOn(class, first string) bool {
	return !isProgramError(class) && (contains(first, carriers) || wrapper(class, first))
}

// passedOn is the exception in a message that passes it on: of the class that the first
// line names where it names one, else the last one.
func passedOn(first, rest string) Finding {
	found := Finding{Code: UserError}
	named := ""
	if words, ok := strings.CutPrefix(first, "Caught "); ok {
		named, _, _ = strings.Cut(words, " ")
	}
	scanner := NewScanner("error.json")
	scanner.OnFinding = func(s Finding) {
		class, _, ok := exception(s.Text)
		switch {
		case s.Quoted:
		case named != "" && ok && simpleName(class) != named:
		case s.Code != UserError || found.Code == UserError:
			found = s
		}
	}
	_, _ = scanner.Write([]byte(rest)) // it keeps what it is given, and never fails
	scanner.Close()
	return found
}

// scanWord is the finding in the text of one exception: the last one that is no plain
// error of the job's own, and among those the last one.
func scanWord(text string) Finding {
	last := Finding{Code: UserError, Phase: NoPhase}
	scanner := NewScanner("error.json")
	scanner.whole = true
	scanner.OnFinding = func(s Finding) {
		if s.Code != UserError || last.Code == UserError {
			last = s
		}
	}
	_, _ = scanner.Write([]byte(text)) // it keeps what it is given, and never fails
	scanner.Close()
	return last
}
