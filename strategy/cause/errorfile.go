package cause

import (
	"encoding/json"
	"strconv"
	"time"
)

// ErrorFile reads what torch.distributed.elastic's @record writes when a rank
// raises: error.json. The exception's type and words are in message, the
// traceback in extraInfo; older writers give message as plain text. It reports
// false for a file that is none.
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
	s = raisedIn(inner.ExtraInfo.Callstack, inner.Message)
	return s, time.Unix(seconds, 0).UTC(), true
}

// raisedIn is the exception that a traceback ends with; without a traceback, the
// message stands for it.
func raisedIn(callstack, message string) Finding {
	last := Finding{Code: UserError, Raised: true, Rank: -1, Phase: NoPhase, Text: message}
	for _, text := range []string{message, callstack} {
		scanner := NewScanner("error.json")
		scanner.OnFinding = func(s Finding) {
			if s.Code != UserError || last.Code == UserError {
				last = s
			}
		}
		_, _ = scanner.Write([]byte(text)) // it keeps what it is given, and fails never
		scanner.Close()
	}
	last.Raised, last.Weight = true, last.Weight.Final()
	last.Remarks = Remarks(last.Code, last.Text)
	return last
}
