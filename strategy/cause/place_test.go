package cause

import (
	"strings"
	"testing"
)

// The place is the innermost line of the job's own code, for an exception raised anywhere below
// it.
func TestPlaceIsInTheJobsCode(t *testing.T) {
	own := []string{`Traceback (most recent call last):`, `  File "/home/u/train.py", line 12, in <module>`, `    main()`, `  File "/home/u/train.py", line 5, in main`, `    return cfg["lr"]`, `           ~~~^^^^^^`}
	library := []string{`  File "/opt/venv/lib/python3.11/site-packages/torch/nn/module.py", line 9, in _call`, `    return f(x)`, `  File "<frozen importlib._bootstrap>", line 1, in _gcd`}
	for _, test := range []struct {
		name      string
		traceback []string
		want      string
	}{
		{"none", nil, ""},
		{"no frames", []string{"KeyError: 'lr'"}, ""},
		{"the job's own", own, `/home/u/train.py:5, in main: return cfg["lr"]`},
		{"below it a library", append(own, library...), `/home/u/train.py:5, in main: return cfg["lr"]`},
		{"a library alone", library, `/opt/venv/lib/python3.11/site-packages/torch/nn/module.py:9, in _call: return f(x)`},
		{"what does not parse", []string{`  File "train.py", line 3`, `    def f(:`}, `train.py:3: def f(:`},
		{"a name that is too long", []string{`  File "/` + strings.Repeat("x", 600) + `", line 1, in f`}, ""},
		{"a line that is too long", []string{`  File "/a.py", line 1, in f`, "    " + strings.Repeat("x", 600)}, "/a.py:1, in f"},
		{"a module", own[:3], `/home/u/train.py:12: main()`},
	} {
		got := ""
		if p := (&Finding{Traceback: test.traceback}).Place(); p != nil {
			got = p.Words()
		}
		if got != test.want {
			t.Errorf("%s: %q, want %q", test.name, got, test.want)
		}
	}
}
