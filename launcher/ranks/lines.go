package ranks

import "bytes"

// longestLine is how much of a line is searched, in bytes.
const longestLine = 4 << 10

// lines cuts a stream into lines, which end at a newline or a carriage return, and passes on the
// first longestLine bytes of each.
type lines struct {
	each func(line []byte) // must not keep it
	part []byte            // the start of the unfinished line
}

func (l *lines) add(p []byte) {
	for len(p) > 0 {
		i := bytes.IndexByte(p, '\n')
		if j := bytes.IndexByte(p[:max(i, 0)], '\r'); j >= 0 {
			i = j
		} else if i < 0 {
			i = bytes.IndexByte(p, '\r')
		}
		if i < 0 {
			l.keep(p)
			return
		}
		if len(l.part) == 0 {
			l.each(p[:min(i, longestLine)])
		} else {
			l.keep(p[:i])
			l.end()
		}
		p = p[i+1:]
	}
}

func (l *lines) keep(p []byte) {
	l.part = append(l.part, p[:min(len(p), longestLine-len(l.part))]...)
}

// end passes on the line that has ended.
func (l *lines) end() {
	l.each(l.part)
	l.part = l.part[:0]
}
