package diagnose

import (
	"bytes"
	"encoding/json"
	"strconv"
	"time"
)

// An entry is one line of a program, as a collector of logs recorded it.
type entry struct {
	writer  string // the container or process, where several share the file
	stream  string // "stdout" or "stderr", where the collector names it
	stamp   []byte // the time, in the collector's format
	text    []byte
	partial bool // the writer's next entry continues the line
}

// A wrapping is the format of a collector of logs.
type wrapping struct {
	name  string
	parse func(line []byte) (entry, bool)
}

// wrappings are the known formats. One that a line of another could have follows that one.
var wrappings = []wrapping{
	{"JSON lines", jsonEntry},            // docker's json-file, journalctl -o json, fluentd, Cloud Logging, json loggers
	{"CRI", criEntry},                    // files of containerd and CRI-O below /var/log/pods
	{"journald", journalEntry},           // journalctl, and the files of rsyslog
	{"kubectl logs", podEntry},           // --prefix
	{"docker compose", composeEntry},     // docker compose logs
	{"docker logs -t", timestampedEntry}, // and kubectl logs --timestamps, and CI systems
}

// mostSampled is the number of lines by which a file's format is recognised.
const mostSampled = 200

// wrappingOf recognises the format of most of the first lines; nil: plain output. The last line
// may be cut.
func wrappingOf(start []byte) *wrapping {
	var counts [8]int
	lines := 0
	for len(start) > 0 && lines < mostSampled {
		line, rest, whole := bytes.Cut(start, []byte{'\n'})
		start = rest
		line = bytes.TrimRight(line, "\r")
		if len(line) == 0 || !whole && lines > 0 {
			continue
		}
		lines++
		for i, w := range wrappings {
			if _, ok := w.parse(line); ok {
				counts[i]++
				break
			}
		}
	}
	for i := range wrappings {
		if counts[i]*2 > lines {
			return &wrappings[i]
		}
	}
	return nil
}

// A record is a line of JSON from a collector of logs, or from a program that logs in JSON.
// encoding/json ignores the case of the names.
type record struct {
	Log         json.RawMessage // docker, fluentd
	Message     json.RawMessage // journald, CloudWatch, json loggers
	Msg         json.RawMessage
	TextPayload json.RawMessage // Cloud Logging
	Event       json.RawMessage // structlog

	Exception json.RawMessage
	ExcInfo   json.RawMessage `json:"exc_info"`
	Stack     json.RawMessage `json:"stack_trace"`

	Stream    string
	Tag       string `json:"logtag"` // of CRI, by fluent-bit
	Time      json.RawMessage
	Timestamp json.RawMessage
	Realtime  json.RawMessage `json:"__REALTIME_TIMESTAMP"` // microseconds

	Unit       string          `json:"_SYSTEMD_UNIT"`
	Identifier string          `json:"SYSLOG_IDENTIFIER"`
	PID        json.RawMessage `json:"_PID"`
	Kubernetes struct {
		Pod       string `json:"pod_name"`
		Container string `json:"container_name"`
	}
	Resource struct {
		Labels struct {
			Pod string `json:"pod_name"`
		}
	}
}

// jsonEntry reads a line of JSON that holds a line of output.
func jsonEntry(line []byte) (entry, bool) {
	if e, ok := dockerEntry(line); ok {
		return e, true
	}
	var r record
	if len(line) < 2 || line[0] != '{' || line[len(line)-1] != '}' || json.Unmarshal(line, &r) != nil {
		return entry{}, false
	}
	e := entry{stream: r.Stream, stamp: plainJSON(firstOf(r.Time, r.Timestamp, r.Realtime))}
	var text bool
	if e.text, text = messageOf(firstOf(r.Log, r.Message, r.Msg, r.TextPayload, r.Event)); !text {
		return entry{}, false
	}
	e.text, e.partial = bytes.TrimRight(e.text, "\n"), r.Tag == "P"
	for _, more := range []json.RawMessage{r.ExcInfo, r.Exception, r.Stack} {
		if text, _ := messageOf(more); bytes.Contains(text, []byte("Traceback")) {
			e.text = append(append(e.text, '\n'), bytes.TrimRight(text, "\n")...)
			break
		}
	}
	switch {
	case r.Kubernetes.Pod != "":
		e.writer = r.Kubernetes.Pod + "/" + r.Kubernetes.Container
	case r.Resource.Labels.Pod != "":
		e.writer = r.Resource.Labels.Pod
	case r.PID != nil:
		e.writer = r.Identifier + "[" + string(plainJSON(r.PID)) + "]"
	}
	return e, true
}

func firstOf(values ...json.RawMessage) json.RawMessage {
	for _, v := range values {
		if len(v) > 0 && string(v) != "null" {
			return v
		}
	}
	return nil
}

// plainJSON is a string or a number without quotes.
func plainJSON(v json.RawMessage) []byte { return bytes.Trim(v, `"`) }

// messageOf is the text of a JSON string, or of the list of bytes that journald writes where the
// text has colour codes; false for other values.
func messageOf(v json.RawMessage) ([]byte, bool) {
	var text string
	if len(v) == 0 || v[0] == '"' {
		ok := len(v) > 0 && json.Unmarshal(v, &text) == nil
		return []byte(text), ok
	}
	var codes []uint16 // a list of uint8 would be base64
	if json.Unmarshal(v, &codes) != nil {
		return nil, false
	}
	all := make([]byte, len(codes))
	for i, c := range codes {
		all[i] = byte(c)
	}
	return all, true
}

// dockerEntry reads docker's own order of the fields, {"log":"…\n","stream":"stdout","time":"…"},
// without a JSON parser: these files are large.
func dockerEntry(line []byte) (entry, bool) {
	text, ok := bytes.CutPrefix(line, []byte(`{"log":"`))
	if !ok {
		return entry{}, false
	}
	end := bytes.LastIndex(text, []byte(`","stream":"std`))
	if end < 0 {
		return entry{}, false
	}
	rest := text[end+len(`","stream":"std`):]
	text = text[:end]
	e := entry{stream: "stdout"}
	if bytes.HasPrefix(rest, []byte("err")) {
		e.stream = "stderr"
	}
	if _, stamp, ok := bytes.Cut(rest, []byte(`"time":"`)); ok {
		e.stamp, _, _ = bytes.Cut(stamp, []byte{'"'})
	}
	plain, whole := bytes.CutSuffix(text, []byte(`\n`))
	e.partial = !whole
	if bytes.IndexByte(plain, '\\') < 0 {
		e.text = plain
		return e, true
	}
	var unquoted string
	if json.Unmarshal(line[len(`{"log":`):len(`{"log":"`)+end+1], &unquoted) != nil {
		return entry{}, false
	}
	e.text = bytes.TrimSuffix([]byte(unquoted), []byte{'\n'})
	return e, true
}

// criEntry reads "2026-03-25T10:34:07.530Z stdout F text": P in place of F is a part of a line.
func criEntry(line []byte) (entry, bool) {
	stamp, rest, ok := rfc3339(line)
	if !ok {
		return entry{}, false
	}
	stream, rest, ok := bytes.Cut(rest, []byte{' '})
	if !ok || string(stream) != "stdout" && string(stream) != "stderr" {
		return entry{}, false
	}
	tag, text, _ := bytes.Cut(rest, []byte{' '})
	if string(tag) != "F" && string(tag) != "P" {
		return entry{}, false
	}
	return entry{stream: string(stream), stamp: stamp, text: text, partial: tag[0] == 'P'}, true
}

// timestampedEntry reads "2026-03-25T10:34:07.530Z text".
func timestampedEntry(line []byte) (entry, bool) {
	stamp, text, ok := rfc3339(line)
	return entry{stamp: stamp, text: text}, ok
}

// rfc3339 cuts a timestamp off the beginning of a line.
func rfc3339(line []byte) (stamp, rest []byte, ok bool) {
	if len(line) < 20 || line[4] != '-' || line[7] != '-' || line[10] != 'T' || line[13] != ':' || line[16] != ':' ||
		!isNumber(line[:4]) {
		return nil, line, false
	}
	end := bytes.IndexByte(line, ' ')
	if end < 0 {
		end = len(line) // the text is empty
	}
	last := line[end-1]
	if end < 20 || end > 36 || last != 'Z' && (last < '0' || last > '9') {
		return nil, line, false
	}
	return line[:end], line[min(end+1, len(line)):], true
}

// podEntry reads "[pod/trainer-worker-0/pytorch] text", which may have a timestamp.
func podEntry(line []byte) (entry, bool) {
	rest, ok := bytes.CutPrefix(line, []byte("[pod/"))
	if !ok {
		return entry{}, false
	}
	name, rest, ok := bytes.Cut(rest, []byte{']'})
	if !ok || bytes.ContainsAny(name, " \t") {
		return entry{}, false
	}
	e := entry{writer: string(name)}
	e.stamp, e.text, _ = rfc3339(bytes.TrimPrefix(rest, []byte{' '}))
	return e, true
}

// composeEntry reads "trainer-1  | text" of docker compose, whose names end in a number.
func composeEntry(line []byte) (entry, bool) {
	line = bytes.TrimPrefix(line, []byte("\x1b[0m"))
	if len(line) > 2 && line[0] == 0x1b { // the colour of the name
		if i := bytes.IndexByte(line, 'm'); i > 0 && i < 12 {
			line = line[i+1:]
		}
	}
	name, text, ok := bytes.Cut(line, []byte(" | "))
	name = bytes.TrimRight(name, " ")
	if !ok || len(name) < 3 || len(name) > 128 || bytes.ContainsAny(name, " \t:()[]{}=,'\"%") {
		return entry{}, false
	}
	i := bytes.LastIndexAny(name, "-_")
	if i <= 0 || !isNumber(name[i+1:]) {
		return entry{}, false
	}
	e := entry{writer: string(name)}
	e.stamp, e.text, _ = rfc3339(bytes.TrimPrefix(text, []byte("\x1b[0m")))
	return e, true
}

// journalEntry reads "Mar 02 10:00:00 host python[123]: text" of journalctl and rsyslog, with the
// forms of the time that journalctl -o short-iso, short-precise, short-full and short-unix write.
func journalEntry(line []byte) (entry, bool) {
	stamp, rest, ok := rfc3339(line)
	if !ok {
		if stamp, rest, ok = journalTime(line); !ok {
			return entry{}, false
		}
	}
	host, rest, ok := bytes.Cut(rest, []byte{' '})
	if !ok || len(host) == 0 || bytes.ContainsAny(host, ":[]()=|/") {
		return entry{}, false
	}
	program, text, ok := bytes.Cut(rest, []byte{':'})
	if !ok || len(program) == 0 || bytes.ContainsAny(program, " \t\"'=") || len(text) > 0 && text[0] != ' ' {
		return entry{}, false
	}
	name, pid, numbered := bytes.Cut(program, []byte{'['})
	if numbered && (len(pid) < 2 || pid[len(pid)-1] != ']' || !isNumber(pid[:len(pid)-1])) || !numbered &&
		string(name) != "kernel" {
		return entry{}, false
	}
	return entry{writer: string(program), stamp: stamp, text: bytes.TrimPrefix(text, []byte{' '})}, true
}

// journalTime cuts the time of a journal's line off its beginning.
func journalTime(line []byte) (stamp, rest []byte, ok bool) {
	if len(line) > 0 && line[0] >= '0' && line[0] <= '9' { // seconds since 1970
		number, rest, ok := bytes.Cut(line, []byte{' '})
		whole, part, dot := bytes.Cut(number, []byte{'.'})
		return number, rest, ok && dot && len(whole) >= 9 && isNumber(whole) && isNumber(part)
	}
	for _, layout := range []string{"Jan _2 15:04:05", "Mon 2006-01-02 15:04:05 MST"} {
		end := len(layout)
		if len(line) < end+2 {
			continue
		}
		if more := bytes.IndexByte(line[end:], ' '); more > 0 && more < 9 { // the fraction of a second
			end += more
		}
		head := line[:end]
		if head[layoutColon(layout)] != ':' {
			continue
		}
		if _, err := time.Parse(layout, string(head)); err == nil && line[end] == ' ' {
			return head, line[end+1:], true
		}
	}
	return nil, line, false
}

// layoutColon is the position of the first colon of a layout, by which most lines are refused.
func layoutColon(layout string) int { return bytes.IndexByte([]byte(layout), ':') }

// timeOf reads the time of an entry; zero if it has none with a year.
func timeOf(stamp []byte) time.Time {
	text := string(stamp)
	for _, layout := range []string{time.RFC3339Nano, "2006-01-02T15:04:05Z0700", "Mon 2006-01-02 15:04:05 MST"} {
		if t, err := time.Parse(layout, text); err == nil {
			return t.UTC()
		}
	}
	seconds, err := strconv.ParseFloat(text, 64)
	if err != nil || seconds < 1e9 {
		return time.Time{}
	}
	for seconds > 1e11 { // milliseconds or microseconds
		seconds /= 1000
	}
	return time.UnixMicro(int64(seconds * 1e6)).UTC()
}

func isNumber(p []byte) bool {
	for _, c := range p {
		if c < '0' || c > '9' {
			return false
		}
	}
	return len(p) > 0
}
