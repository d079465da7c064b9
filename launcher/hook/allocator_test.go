package hook

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gpurun/gpurun/strategy"
	"github.com/gpurun/gpurun/test/testenv"
)

// A script's own setting of PyTorch's allocator stays, however the script makes it; gpurun's counts only where the
// script has made none by its import of torch.
func TestAllocatorSettingsOfAScriptStay(t *testing.T) {
	t.Parallel()
	const name, since, ours = "PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF", "expandable_segments:True"
	const limited = "per_process_memory_fraction:0.500000"
	show := fmt.Sprintf("import torch\nprint(repr([os.environ.get(n) for n in (%q, %q)]))\n", name, since)
	for _, test := range []struct {
		name, before, value, script string
		want                        string
		used                        strategy.Value // reported; empty: nothing
	}{
		{"nothing", "", ours, "", "['" + ours + "', None]", ""},
		{"before the import there is none", "", ours, "assert not [n for n in os.environ if 'ALLOC_CONF' in n]", "['" + ours + "', None]", ""},
		{"setdefault", "", ours, "os.environ.setdefault('" + name + "', 'max_split_size_mb:128')", "['max_split_size_mb:128', None]", "default"},
		{"setdefault of the newer name", "", ours, "os.environ.setdefault('" + since + "', 'expandable_segments: True')", "[None, 'expandable_segments: True']", "expandable"},
		{"an assignment", "", ours, "os.environ['" + name + "'] = 'backend:cudaMallocAsync'", "['backend:cudaMallocAsync', None]", "default"},
		{"putenv in a child's environment", "", ours, "import subprocess, sys\nsys.exit(subprocess.run([sys.executable, '-c', " +
			`"""import os; os.environ.setdefault('` + name + `', 'a:1'); import torch; print([os.environ['` + name + `'], None])"""` + "]).returncode)", "['a:1', None]", ""},
		{"setdefault beside the user's", "a:1", "a:1," + ours, "os.environ.setdefault('" + name + "', 'b:1')", "['a:1," + ours + "', None]", ""},
		{"an assignment in place of the user's", "a:1", "a:1," + ours, "os.environ['" + name + "'] = 'b:1'", "['b:1', None]", "default"},
		{"removal of the user's", "a:1", "a:1," + ours, "del os.environ['" + name + "']", "[None, None]", "default"},
		{"a limit is added", "", ours + "," + limited, "os.environ.setdefault('" + name + "', 'b:1')", "['b:1," + limited + "', None]", "default"},
		{"a limit of the script's", "", ours + "," + limited, "os.environ['" + since + "'] = 'per_process_memory_fraction:0.1'", "[None, 'per_process_memory_fraction:0.1']", "default"},
		{"no order", "", "", "os.environ.setdefault('" + name + "', 'expandable_segments:True')", "['expandable_segments:True', None]", "expandable"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			r := newTrial(t)
			r.troubled = true // this torch is empty
			if err := os.WriteFile(filepath.Join(r.modules, "torch.py"), nil, 0o600); err != nil {
				t.Fatal(err)
			}
			script := filepath.Join(r.home, "job.py")
			if err := os.WriteFile(script, []byte("import os\n"+test.script+"\n"+show), 0o600); err != nil {
				t.Fatal(err)
			}
			r.orders.Script = script
			if test.before != "" {
				r.env = append(r.env, name+"="+test.before)
			}
			if test.value != "" {
				r.env = append(r.env, name+"="+test.value)
				r.orders.Allocator = &AllocatorOrder{Name: name, Value: test.value}
				if test.before != "" {
					r.orders.Allocator.Before = &test.before
				}
			}
			out := r.train(t, testenv.Python(t), script)
			said, _ := r.told(t)
			if said == nil {
				said = &strategy.ProcessReport{}
			}
			if strings.TrimSpace(out) != test.want || said.Settings[strategy.Allocator] != test.used {
				t.Errorf("%s, %+v; want %s, %s", out, said, test.want, test.used)
			}
			if own := said.Failed[strategy.Allocator] != ""; own != (test.used != "") {
				t.Errorf("reported: %+v", said)
			}
		})
	}
}

// A rank that fails before it imports torch has not set another allocator.
func TestAllocatorOfARankThatFailsEarly(t *testing.T) {
	t.Parallel()
	r := newTrial(t)
	r.env = append(r.env, "PYTORCH_CUDA_ALLOC_CONF=a:1")
	r.orders.Allocator = &AllocatorOrder{Name: "PYTORCH_CUDA_ALLOC_CONF", Value: "a:1"}
	script := filepath.Join(r.home, "job.py")
	if err := os.WriteFile(script, []byte("1 / 0\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	r.orders.Script = script
	cmd := r.job(t, testenv.Python(t), script)
	cmd.Env = append(cmd.Env, namesVariable+"=PYTORCH_CUDA_ALLOC_CONF")
	if out, err := cmd.CombinedOutput(); err == nil {
		t.Fatal(string(out))
	}
	if used := Environ(r.dir, 0)["PYTORCH_CUDA_ALLOC_CONF"]; used != "a:1" {
		t.Errorf("used %q", used)
	}
}
