package recipes_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gpurun/gpurun/recipes"
)

// TestFilesNamed: a file can name another one, which is listed after the first is loaded.
func TestFilesNamed(t *testing.T) {
	hf := catalogued(t, "hf-trainer")
	cmd := recipes.Command{Argv: []string{"x.py", "args.json"}, Files: map[string][]byte{}}
	if diff := cmp.Diff([]string{"args.json"}, hf.FilesNamed(cmd)); diff != "" {
		t.Errorf("first (-want +got):\n%s", diff)
	}
	cmd.Files["args.json"] = []byte(`{"deepspeed": "ds.json"}`)
	if diff := cmp.Diff([]string{"args.json", "ds.json"}, hf.FilesNamed(cmd)); diff != "" {
		t.Errorf("then (-want +got):\n%s", diff)
	}
	inline := recipes.Command{Argv: []string{"x.py", "--deepspeed", `{"zero_optimization": {}}`}}
	if got := hf.FilesNamed(inline); len(got) > 0 {
		t.Errorf("inline JSON asks for %v", got)
	}
}
