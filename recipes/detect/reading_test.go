package detect

import (
	"testing"

	"github.com/gpurun/gpurun/recipes/format"
	"github.com/gpurun/gpurun/test/testenv"
)

// reading is the interpreter's result for some sources, the script first.
func reading(t testing.TB, sources ...format.Source) SourceReading {
	t.Helper()
	input, err := SourceRequest{Sources: sources, Names: []string{"f"}, Seconds: 600}.Input()
	if err != nil {
		t.Fatal(err)
	}
	r, err := Read(testenv.Answer(t, Program, input))
	if err != nil || r.Unknown != "" {
		t.Fatal(r.Unknown, err)
	}
	return r
}

// CodeOf is codeOf for the tests outside the package, which need recipes.
var CodeOf = codeOf

// codeOf is the content of single files.
func codeOf(t testing.TB, texts ...string) format.ScriptCode {
	t.Helper()
	var sources []format.Source
	for _, text := range texts {
		sources = append(sources, format.Source{Path: "train.py", Text: []byte(text)})
	}
	return reading(t, sources...).Code
}
