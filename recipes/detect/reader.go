// Package detect reads names: which framework a job's command starts, and which of the arguments and configuration keys
// of a script may be knobs. The job's interpreter parses the source with reader.py, which imports nothing of the
// job's; what a value means, only the job's process says.
package detect

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/gpurun/gpurun/recipes/format"
)

// Program is the Python program that an interpreter runs for a request, with Input on its
// standard input; its output is for Read. It needs Python 3.8.
//
//go:embed reader.py
var Program string

// A SourceRequest is the input of Program.
type SourceRequest struct {
	// Sources are the script, then its local modules.
	Sources []format.Source
	// Names are functions, by their last names, whose calls are listed in addition to those of
	// classes.
	Names []string
	// Seconds is the limit of its processor time; its findings until then are the result.
	Seconds float64
}

// Input is the request in the form that Program reads.
func (r SourceRequest) Input() ([]byte, error) {
	type file struct {
		Path string `json:"path"`
		Text string `json:"text"`
	}
	files := make([]file, len(r.Sources))
	for i, s := range r.Sources {
		files[i] = file{s.Path, string(s.Text)}
	}
	return json.Marshal(map[string]any{"sources": files, "names": r.Names, "seconds": r.Seconds})
}

// A SourceReading is the result of a request.
type SourceReading struct {
	Code    format.ScriptCode `json:"files"`
	Unknown string            `json:"unknown"` // why a part is missing
}

// Read reads the output of Program: its last line, because a sitecustomize may have printed
// before.
func Read(printed []byte) (SourceReading, error) {
	text := strings.TrimSpace(string(printed))
	var r SourceReading
	if err := json.Unmarshal([]byte(text[strings.LastIndexByte(text, '\n')+1:]), &r); err != nil {
		return SourceReading{}, fmt.Errorf("read the output of the script's reader: %w", err)
	}
	if len(r.Code) == 0 {
		r.Code = nil
	}
	return r, nil
}
