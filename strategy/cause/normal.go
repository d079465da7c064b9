package cause

import (
	"strconv"
	"strings"
)

// A segment is the text that one writer put on a line, without the prefixes of launchers.
type segment struct {
	key  string // of the writer among those that share a stream; empty for the only one
	rank int    // the rank that the prefix names; -1: none
	text string
	cut  bool // another writer's tag follows; the line continues later
}

// plain removes terminal control sequences and control bytes. PyTorch 2.2 and 2.3 print a device
// index as a raw byte, which becomes a number.
func plain(raw []byte) string {
	i := control(raw)
	if i == len(raw) {
		return strings.ToValidUTF8(string(raw), "\uFFFD")
	}
	var b strings.Builder
	b.Grow(len(raw))
	done := 0
	for ; i < len(raw); i += 1 + control(raw[i+1:]) {
		b.Write(raw[done:i])
		c := raw[i]
		switch {
		case c == 0x1b:
			i = skipEscape(raw, i)
		case strings.HasSuffix(b.String(), "GPU ") && followed(raw[i+1:], " has a total"):
			b.WriteString(strconv.Itoa(int(c)))
		}
		done = i + 1
	}
	b.Write(raw[min(done, len(raw)):])
	return strings.ToValidUTF8(b.String(), "\uFFFD")
}

// control returns the index of the first control character other than a tabulator.
func control(p []byte) int {
	for i, c := range p {
		if c < 0x20 && c != '\t' || c == 0x7f {
			return i
		}
	}
	return len(p)
}

func followed(p []byte, by string) bool {
	return len(p) >= len(by) && string(p[:len(by)]) == by
}

// skipEscape returns the index of the last byte of the escape sequence at i:
// CSI (colours, cursor), OSC (titles, links), or a sequence of two bytes.
func skipEscape(p []byte, i int) int {
	if i+1 >= len(p) {
		return i
	}
	switch p[i+1] {
	case '[':
		for j := i + 2; j < len(p); j++ {
			if p[j] >= 0x40 && p[j] <= 0x7e {
				return j
			}
		}
		return len(p) - 1
	case ']':
		for j := i + 2; j < len(p); j++ {
			if p[j] == 0x07 {
				return j
			}
			if p[j] == 0x1b && j+1 < len(p) && p[j+1] == '\\' {
				return j + 1
			}
		}
		return len(p) - 1
	}
	return i + 1
}

// segments splits a line at the tags that mpirun --tag-output puts at the beginning of each
// write, and strips the other prefixes.
func segments(line string) []segment {
	var all []segment
	key, rank := "", -1
	for {
		at, end, tag, r := mpirunTag(line)
		if at < 0 {
			break
		}
		if at > 0 || key != "" {
			all = append(all, segment{key: key, rank: rank, text: line[:at], cut: true})
		}
		key, rank, line = tag, r, line[end:]
	}
	if key != "" {
		return append(all, segment{key: key, rank: rank, text: line})
	}
	return append(all, strip(line))
}

// mpirunTag finds the first "[job,rank]<stderr>:" of Open MPI. It returns -1 if there is none.
func mpirunTag(line string) (at, end int, key string, rank int) {
	for from := 0; ; {
		i := strings.Index(line[from:], "]<std")
		if i < 0 {
			return -1, 0, "", -1
		}
		i += from
		from = i + 1
		open := strings.LastIndexByte(line[:i], '[')
		if open < 0 {
			continue
		}
		job, number, ok := strings.Cut(line[open+1:i], ",")
		if !ok || !digits(job) || !digits(number) {
			continue
		}
		for _, close := range []string{"]<stderr>:", "]<stdout>:"} {
			if strings.HasPrefix(line[i:], close) {
				r, err := strconv.Atoi(number)
				if err != nil {
					r = -1
				}
				return open, i + len(close), "mpi" + number, r
			}
		}
	}
}

// strip removes the prefixes at the beginning of a line, one after the other.
func strip(line string) segment {
	s := segment{rank: -1, text: line}
	for range 4 { // a pod's timestamp, Ray's, torchrun's and PyTorch's own
		if !s.bracket("[rank") && !s.bracket("[default") && !s.ray() && !s.srun() && !s.timestamp() && !s.pytest() &&
			!s.host() && !s.box() {
			break
		}
	}
	return s
}

// bracket strips "[rank3]:" of PyTorch 2.2 on and "[default3]:" of torchrun with
// --tee; the latter names the local rank.
func (s *segment) bracket(open string) bool {
	rest, ok := strings.CutPrefix(s.text, open)
	if !ok {
		return false
	}
	number, rest, ok := strings.Cut(rest, "]:")
	if !ok || len(number) > 7 || !digits(number) {
		return false
	}
	s.rank, _ = strconv.Atoi(number)
	s.key += open + number
	s.text = strings.TrimPrefix(rest, " ")
	return true
}

// ray strips "(WorkerDict pid=123, ip=10.0.0.1) ".
func (s *segment) ray() bool {
	if !strings.HasPrefix(s.text, "(") {
		return false
	}
	head, rest, ok := strings.Cut(s.text, ") ")
	if !ok || len(head) > 160 {
		return false
	}
	_, pid, ok := strings.Cut(head, " pid=")
	if !ok {
		return false
	}
	pid, _, _ = strings.Cut(pid, ",")
	if !digits(pid) {
		return false
	}
	s.key, s.text = "pid"+pid, rest
	return true
}

// srun strips "3: " of srun --label, which aligns the numbers to the right.
func (s *segment) srun() bool {
	number, _, ok := strings.Cut(s.text[:min(len(s.text), 7)], ": ")
	if !ok || len(number) > 5 {
		return false
	}
	rest := s.text[len(number)+len(": "):]
	number = strings.TrimLeft(number, " ")
	if !digits(number) {
		return false
	}
	s.rank, _ = strconv.Atoi(number)
	s.key, s.text = "task"+number, rest
	return true
}

// timestamp strips "2026-03-25T10:34:07.530Z " of containers' logs.
func (s *segment) timestamp() bool {
	t := s.text
	if len(t) < 21 || t[4] != '-' || t[7] != '-' || t[10] != 'T' || t[13] != ':' || !digits(t[:4]) {
		return false
	}
	i := strings.IndexByte(t, ' ')
	if i < 20 || i > 36 {
		return false
	}
	s.text = t[i+1:]
	return true
}

// host strips "worker-5: " of pdsh, which DeepSpeed's launcher uses, if a traceback's line
// follows: any word may precede a colon.
func (s *segment) host() bool {
	name, _, ok := strings.Cut(s.text[:min(len(s.text), 66)], ": ")
	if !ok || name == "" || len(name) > 64 || exceptionName(name) || strings.ContainsAny(name, " \t()[]\"'/:") {
		return false
	}
	rest := s.text[len(name)+len(": "):]
	if !strings.HasPrefix(rest, "[rank") && !strings.HasPrefix(rest, "Traceback (most") &&
		!strings.HasPrefix(rest, "  File \"") && !strings.HasPrefix(rest, "    ") {
		if class, _, ok := exception(rest); !ok || strings.Contains(class, " ") {
			return false
		}
	}
	s.key, s.text = "host"+name, rest
	return true
}

// box strips the frame that the rich library draws around a traceback.
func (s *segment) box() bool {
	rest, ok := strings.CutPrefix(s.text, "│ ")
	if !ok {
		return false
	}
	s.text = strings.TrimRight(strings.TrimSuffix(strings.TrimRight(rest, " "), "│"), " ")
	return true
}

// pytest strips the "E   " that pytest puts before an exception's text.
func (s *segment) pytest() bool {
	if !strings.HasPrefix(s.text, "E   ") {
		return false
	}
	s.text = strings.TrimLeft(s.text[1:], " ")
	return true
}

func digits(s string) bool {
	for i := range len(s) {
		if s[i] < '0' || s[i] > '9' {
			return false
		}
	}
	return s != ""
}
