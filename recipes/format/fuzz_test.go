package format

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gpurun/gpurun/recipes/edit"
)

// FuzzParse checks that no text makes the reader of recipes panic, and that the position of every
// fault is in the text.
func FuzzParse(f *testing.F) {
	files, err := filepath.Glob("../catalog/*.toml")
	if err != nil || len(files) == 0 {
		f.Fatalf("no recipes: %v", err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text)
	}
	for _, text := range []string{
		"[knobs]\nprecision = [{ choose = 1 }, { via = [1] }, { arg = [] }, { path = '', via = {} }]\nmicro_batch_size = { alternatives = 3, default = [] }",
		"rules = [1]\nparser = 3\nparallel = [{ model = 1 }, { alternatives = [{ arg = 2 }] }]\ndeepspeed = 1\n[resume]\nvalues = { x = ['a'], y = 3 }\nlatest = '{pointer}'",
		"own_oom = {}\nalso = [{ value = {} }]\ncheckpoint = [{ knob = 'x', survives = [1, [2]] }]\n[detect]\nsource = [1, [2]]",
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		_, err := Parse("x.toml", text, Rules{"deepspeed-config": {}})
		if err == nil {
			return
		}
		var wrong *edit.FileError
		if !errors.As(err, &wrong) || len(wrong.Faults) == 0 {
			t.Fatalf("%v is no error with places", err)
		}
		lines := strings.Split(string(text), "\n")
		for _, fault := range wrong.Faults {
			if fault.Line < 1 || fault.Line > len(lines) || fault.Column < 1 || fault.Column > len([]rune(lines[fault.Line-1]))+1 {
				t.Errorf("%+v is not in the text", fault)
			}
		}
	})
}
