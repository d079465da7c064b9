package recipes_test

import (
	"testing"

	"github.com/gpurun/gpurun/recipes"
	"github.com/gpurun/gpurun/recipes/detect"
	"github.com/gpurun/gpurun/recipes/format"
	"github.com/gpurun/gpurun/test/testenv"
)

// parsed is a command whose script and modules an interpreter has parsed.
func parsed(t testing.TB, cmd recipes.Command) recipes.Command {
	t.Helper()
	input, err := detect.SourceRequest{Sources: append([]format.Source{{Path: "train.py", Text: cmd.Script}}, cmd.Modules...), Seconds: 600}.Input()
	if err != nil {
		t.Fatal(err)
	}
	r, err := detect.Read(testenv.Answer(t, detect.Program, input))
	if err != nil || r.Unknown != "" {
		t.Fatal(r.Unknown, err)
	}
	cmd.Code = r.Code
	return cmd
}
