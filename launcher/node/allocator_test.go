package node

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/gpurun/gpurun/test/testenv"
)

// The variable that gpurun sets for PyTorch's allocator does not replace one that a script sets if there is none.
func TestScriptsAllocatorVariable(t *testing.T) {
	const name, ours = "PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True"
	for _, test := range []struct{ own, want string }{
		{"pass", ours},
		{`os.environ.setdefault("` + name + `", "max_split_size_mb:128")`, "max_split_size_mb:128"},
	} {
		f := newFixture(t, fmt.Sprintf("#!%s\nimport os\n%s\nimport torch\nopen('used', 'w').write(os.environ[%q])\n", testenv.Python(t), test.own, name))
		f.opts.Hook, f.opts.Ranks, f.opts.Plain = true, 1, true
		delete(f.opts.Env, name)
		if err := os.WriteFile(filepath.Join(f.dir, "torch.py"), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		dir, err := f.store.Prepare(0)
		if err != nil {
			t.Fatal(err)
		}
		launch := f.launch(0, dir)
		launch.Command.Env = map[string]string{name: ours}
		a, err := New(f.opts, f.log, f.signals).Start(t.Context(), launch)
		if err != nil {
			t.Fatal(err)
		}
		for fact := range a.Facts() {
			t.Logf("%+v", fact)
		}
		if used, err := os.ReadFile(filepath.Join(f.dir, "used")); string(used) != test.want {
			t.Errorf("%s: used %q, want %q: %v", test.own, used, test.want, err)
		}
	}
}
