package job

import (
	"fmt"

	"github.com/gpurun/gpurun/recipes/document"
)

// A Preflight says what is looked at before the first attempt.
type Preflight string

// The settings of launch.preflight.
const (
	PreflightAuto Preflight = "auto"  // what the driver says of the GPUs, beside the ranks' start
	PreflightOn   Preflight = "true"  // before it, and each GPU is tried
	PreflightOff  Preflight = "false" // nothing
)

// readPreflight reads "auto", true or false.
func readPreflight(t *table) Preflight {
	switch v, set := t.get("preflight"); v := v.(type) {
	case bool:
		return Preflight(fmt.Sprint(v))
	case string:
		if v == string(PreflightAuto) {
			return PreflightAuto
		}
		t.bad("preflight", "%q: want %q, true or false", v, PreflightAuto)
	default:
		if set {
			t.bad("preflight", "want %q, true or false, found %s", PreflightAuto, document.Describe(v))
		}
	}
	return PreflightAuto
}
