package recipes_test

import (
	"testing"

	"github.com/gpurun/gpurun/recipes"
	"github.com/gpurun/gpurun/recipes/format"
	"github.com/gpurun/gpurun/recipes/script"
	"github.com/gpurun/gpurun/test/testenv"
)

// parsed is a command whose script and modules an interpreter has parsed.
func parsed(t testing.TB, cmd recipes.Command) recipes.Command {
	t.Helper()
	input, err := script.SourceRequest{Sources: append([]format.Source{{Path: "train.py", Text: cmd.Script}}, cmd.Modules...), Seconds: 600}.Input()
	if err != nil {
		t.Fatal(err)
	}
	r, err := script.Read(testenv.Answer(t, script.SourceRequest{Deep: true}.Program(), input))
	if err != nil || r.Unknown != "" {
		t.Fatal(r.Unknown, err)
	}
	cmd.Code = r.Code
	return cmd
}
