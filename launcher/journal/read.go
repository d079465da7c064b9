package journal

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/gpurun/gpurun/launcher"
	"github.com/gpurun/gpurun/launcher/system"
)

// The sizes in bytes of the begin and the end of a journal that an outline reads. Most journals are shorter.
const (
	outlineHead = 256 << 10
	outlineTail = 2 << 20
	maxVerdict  = 16 << 20
)

// outlined are the kinds of event in an outline; the others are long.
var outlined = []string{"began", "started", "exited", "decided", "finished"}

// Outline reads the begin and the end of a run's journal, at a cost that does not grow with the run: who began it, the
// attempts that were started, and the decisions. Of a long journal those in the middle are missing. It returns the
// time of the last write, too. The error is *Unreadable for a line that cannot be read.
func Outline(dir string) (events []launcher.Event, written time.Time, err error) {
	path := filepath.Join(dir, File)
	f, err := system.OpenFile(path, os.O_RDONLY)
	if err != nil {
		return nil, time.Time{}, fmt.Errorf("read the journal: %w", err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, time.Time{}, fmt.Errorf("read the journal: %w", err)
	}
	head, tail := io.NewSectionReader(f, 0, info.Size()), io.NewSectionReader(f, 0, 0)
	if info.Size() > outlineHead+outlineTail {
		head = io.NewSectionReader(f, 0, outlineHead)
		tail = io.NewSectionReader(f, info.Size()-outlineTail, outlineTail)
	}
	for _, part := range []*io.SectionReader{head, tail} {
		text, err := io.ReadAll(part)
		if err != nil {
			return nil, info.ModTime(), fmt.Errorf("read the journal: %w", err)
		}
		if part == tail {
			_, text, _ = bytes.Cut(text, []byte("\n")) // it may begin within a line
		}
		more, err := outlineOf(text)
		if err != nil {
			return events, info.ModTime(), fmt.Errorf("%s: %w", path, err)
		}
		events = append(events, more...)
	}
	return events, info.ModTime(), nil
}

// Walk visits all events of a journal whose kinds are in an outline, with the time of each, until visit returns false.
func Walk(dir string, visit func(e launcher.Event, at time.Time) (more bool)) error {
	text, err := readRegular(filepath.Join(dir, File))
	if err != nil {
		return fmt.Errorf("read the journal: %w", err)
	}
	return walk(text, visit)
}

// outlineOf decodes the whole lines of a text that belong to an outline.
func outlineOf(text []byte) (events []launcher.Event, err error) {
	err = walk(text, func(e launcher.Event, _ time.Time) bool {
		events = append(events, e)
		return true
	})
	return events, err
}

func walk(text []byte, visit func(e launcher.Event, at time.Time) (more bool)) error {
	for line := range bytes.Lines(text) {
		if !bytes.HasSuffix(line, []byte("\n")) || bytes.IndexByte(line, 0) >= 0 {
			return nil // torn, or cut where the part ends
		}
		if !bytes.HasPrefix(line, opening) {
			return errors.New("it is not an event of a run")
		}
		if !slices.ContainsFunc(outlined, func(kind string) bool {
			return bytes.Contains(line[:min(len(line), 64)], []byte(`"kind":"`+kind+`"`))
		}) {
			continue
		}
		e, at, err := launcher.Decode(line)
		if err != nil {
			return err
		}
		if !visit(e, at) {
			return nil
		}
	}
	return nil
}

// ReadVerdict reads a run's verdict.json, which may be a draft: how the run ends if its gpurun writes no more. It
// returns the time of writing, too. The error is fs.ErrNotExist where there is none.
func ReadVerdict(dir string) (v launcher.Verdict, written time.Time, err error) {
	if written, err = system.ReadJSON(filepath.Join(dir, verdictFile), maxVerdict, &v); err != nil {
		return v, written, fmt.Errorf("read the verdict: %w", err)
	}
	return v, written, nil
}

// Unreadable is a line of a journal that this gpurun cannot read: a newer one wrote it, or it was changed. The run
// directory stays unchanged.
type Unreadable struct {
	Path string
	Line int
	Err  error
}

func (e *Unreadable) Error() string { return fmt.Sprintf("%s:%d: %v", e.Path, e.Line, e.Err) }

// Unwrap returns the reason.
func (e *Unreadable) Unwrap() error { return e.Err }

// Hint returns what the user can do.
func (e *Unreadable) Hint() string {
	return "use the gpurun that wrote the run directory, or name another --run-dir or --run-id; the ranks' output is still in its attempts' folders"
}

// opening is the begin of every line. A file that begins otherwise is no journal, rather than a torn line.
var opening = []byte(`{"v":`)

// read returns the events of a journal, and the size of their lines. A torn last line (gpurun or its machine was killed
// while it wrote) is not an event: it was not acted on. It has no newline, or a hole of NULs. The error for any other
// line is *Unreadable.
func read(path string) (events []launcher.Event, whole int64, err error) {
	text, err := readRegular(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, 0, nil
	}
	if err != nil {
		return nil, 0, fmt.Errorf("read the journal: %w", err)
	}
	if text := bytes.TrimLeft(text, "\x00"); !bytes.HasPrefix(text, opening[:min(len(opening), len(text))]) {
		return nil, 0, &Unreadable{Path: path, Line: 1, Err: errors.New("it is not an event of a run")}
	}
	for line := range bytes.Lines(text) {
		end := whole + int64(len(line))
		if !bytes.HasSuffix(line, []byte("\n")) || end == int64(len(text)) && bytes.IndexByte(line, 0) >= 0 {
			break
		}
		e, _, err := launcher.Decode(line)
		if err != nil {
			return nil, 0, &Unreadable{Path: path, Line: len(events) + 1, Err: err}
		}
		events, whole = append(events, e), end
	}
	return events, whole, nil
}
