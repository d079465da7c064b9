package job

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/gpurun/gpurun/launcher/commandline"
	"github.com/gpurun/gpurun/launcher/errext"
	"github.com/gpurun/gpurun/launcher/python"
)

// A ceiling below what PyTorch takes before there is a model is refused with the least that
// is of use here; without PyTorch it is 512 MiB.
func TestTheLeastCeilingOnTheCPU(t *testing.T) {
	for name, test := range map[string]struct {
		says  string
		bytes int64
		env   commandline.Environ
		local int
		hint  string
	}{
		"below what it takes":   {"echo hello; echo 624640", 600 << 20, nil, 1, "PyTorch alone takes 610 MiB of each rank's memory here: 640MiB is the least"},
		"above it":              {"echo 624640", 640 << 20, nil, 1, ""},
		"less than 512 MiB":     {"echo 300000", 400 << 20, nil, 1, ""},
		"no PyTorch":            {"exit 1", 600 << 20, nil, 1, ""},
		"no PyTorch, and less":  {"exit 1", 500 << 20, nil, 1, "at least 512MiB"},
		"as torchrun has ranks": {"[ \"$OMP_NUM_THREADS\" = 1 ] && echo 500000 || echo 700000", 600 << 20, nil, 2, ""},
		"the user's threads":    {"[ \"$OMP_NUM_THREADS\" = 1 ] && echo 500000 || echo 700000", 600 << 20, commandline.ParseEnviron([]string{"OMP_NUM_THREADS=8"}), 2, "704MiB is the least"},
		"far above it":          {"echo asked >&2; echo 99999999", 64 << 30, nil, 1, ""},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "python")
			put(t, path, "#!/bin/sh\n"+test.says+"\n")
			r := Resolved{Inspected: Inspected{Job: Job{Kind: Script}, env: test.env, Interpreter: python.At(path, t.TempDir(), test.env)}, processes: processes{Ranks: test.local}}
			err := r.roomForTorch(t.Context(), test.bytes)
			if test.hint == "" && err != nil || !strings.Contains(errext.Hint(err), test.hint) || (err == nil) != (test.hint == "") {
				t.Errorf("%v, hint %q", err, errext.Hint(err))
			}
		})
	}
}
