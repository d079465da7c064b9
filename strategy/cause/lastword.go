package cause

import "strings"

// An Exception is the one that ended a process, as the process itself reported it. Unlike in
// output, class, message and the exception that it was raised from are separate.
type Exception struct {
	Class     string // "torch.OutOfMemoryError"
	Message   string
	Traceback string // header and frames, without the exception's own line
	// Inner is the exception that it was raised from, or in whose handling; nil for none.
	Inner    *Exception
	Explicit bool // Inner was given by "raise … from"
	Caught   bool // the frame that raised it had caught Inner
}

// chainLimit bounds how far back the reason of an exception is looked for.
const chainLimit = 8

// LastWord is the finding of the exception that ended a process: by its own class and message
// or, where those only pass on another one, by the exception that it was raised from.
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

// alone is the finding of the exception by itself. Its whole message counts where the first
// line names a cause, or says that another process's exception follows; else it may hold any
// text.
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

// lastFinding is the last finding in a text that counts and is no plain error of the job's
// code, else the last one that counts. whole: the text is one exception.
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
