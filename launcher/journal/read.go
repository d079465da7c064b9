package journal

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io/fs"

	"github.com/gpurun/gpurun/launcher"
)

// Unreadable is a line of a journal that this gpurun cannot read: it was written
// by a newer one, or changed since. The run directory is left as it is.
type Unreadable struct {
	Path string
	Line int
	Err  error
}

func (e *Unreadable) Error() string { return fmt.Sprintf("%s:%d: %v", e.Path, e.Line, e.Err) }

// Unwrap returns why the line cannot be read.
func (e *Unreadable) Unwrap() error { return e.Err }

// Hint says what can be done about it.
func (e *Unreadable) Hint() string {
	return "use the gpurun that wrote the run directory, or name another --run-dir or --run-id; the ranks' output is still in its attempts' folders"
}

// opening is how every line begins. A file that begins otherwise is somebody else's, and
// is not taken for a line that was cut off.
var opening = []byte(`{"v":`)

// read returns the events of a journal, and how many of its bytes hold them. A
// last line that is torn (gpurun or its machine was killed while it wrote) is
// not an event: nobody acted upon it. It has no end, or a hole of NULs. The
// error for any other line is *Unreadable.
func read(path string) (events []launcher.Event, whole int64, err error) {
	text, err := readRegular(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, 0, nil
	}
	if err != nil {
		return nil, 0, fmt.Errorf("read the journal: %w", err)
	}
	if text := bytes.TrimLeft(text, "\x00"); !bytes.HasPrefix(text, opening[:min(len(opening), len(text))]) {
		return nil, 0, &Unreadable{Path: path, Line: 1, Err: errors.New("it is no event of a run")}
	}
	lines := bufio.NewScanner(bytes.NewReader(text))
	lines.Buffer(nil, len(text)+1)
	for n := 1; lines.Scan(); n++ {
		line := lines.Bytes()
		end := whole + int64(len(line)) + 1
		e, _, err := launcher.Decode(line)
		if end > int64(len(text)) || end == int64(len(text)) && bytes.IndexByte(line, 0) >= 0 {
			return events, whole, nil
		}
		if err != nil {
			return nil, 0, &Unreadable{Path: path, Line: n, Err: err}
		}
		events, whole = append(events, e), end
	}
	return events, whole, nil
}
