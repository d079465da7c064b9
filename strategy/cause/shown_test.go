package cause

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// probed is a traceback of a deep model as the job prints it, with gpurun's own frames between
// the job's line and those of the library.
func probed(depth int) []string {
	lines := []string{"Traceback (most recent call last):",
		`  File "/home/u/train.py", line 40, in <module>`, `    main()`,
		`  File "/home/u/train.py", line 25, in main`, `    loss = model(x).sum()`,
		`  File "/home/u/.gpurun/train/r/attempt-0/probe-123/inside/root.py", line 90, in call`, `    return plain(self, *args)`, `           ^^^^^^^^^^^^^^^^^^`}
	for i := range depth {
		lines = append(lines, fmt.Sprintf(`  File "/v/lib/python3.11/site-packages/torch/nn/module.py", line %d, in _call`, i), `    return forward_call(*args)`)
	}
	return append(lines, `  File "/run/probe-9/inside/observe/marks.py", line 3, in mark`, `torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB`)
}

// gpurun's own frames are not shown, and the innermost line of the job's own always is.
func TestShown(t *testing.T) {
	for _, test := range []struct {
		name        string
		depth, most int
		lines       int
		first       string
	}{
		{"all of it", 2, 50, 10, "Traceback (most recent call last):"},
		{"the last lines", 2, 8, 8, `    main()`},
		{"the job's own line lies deeper", 60, 13, 13, `  File "/home/u/train.py", line 25, in main`},
	} {
		got := Shown(probed(test.depth), test.most)
		all := strings.Join(got, "\n")
		if len(got) != test.lines || got[0] == "" || test.name != "the last lines" && got[0] != test.first {
			t.Errorf("%s: %d lines: %s", test.name, len(got), all)
		}
		if strings.Contains(all, "probe-") || strings.Contains(all, "plain(self") || strings.Contains(all, "^^^") {
			t.Errorf("%s: gpurun's own frames are shown: %s", test.name, all)
		}
		if !strings.Contains(all, `train.py", line 25`) || !strings.Contains(all, "loss = model(x)") || !strings.Contains(got[len(got)-1], "OutOfMemoryError") {
			t.Errorf("%s: %s", test.name, all)
		}
	}
	if got := Shown([]string{"KeyError: 1"}, 13); !slices.Equal(got, []string{"KeyError: 1"}) {
		t.Errorf("%q", got)
	}
	if got := Shown(nil, 13); len(got) != 0 {
		t.Errorf("%q", got)
	}
}

// The kept part of a traceback has the job's own line, however deep the library is.
func TestScannerKeepsTheJobsOwnLine(t *testing.T) {
	found := Scan("stderr", strings.Join(probed(60), "\n")+"\n")
	if len(found) == 0 {
		t.Fatal("nothing was found")
	}
	last := found[len(found)-1]
	if p := last.Place(); p == nil || p.Words() != "/home/u/train.py:25, in main: loss = model(x).sum()" {
		t.Errorf("%v of %q", p, last.Traceback)
	}
	if len(last.Traceback) > tracebackLines {
		t.Errorf("%d lines", len(last.Traceback))
	}
}
