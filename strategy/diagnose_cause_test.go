package strategy

import (
	"testing"

	"github.com/gpurun/gpurun/strategy/cause"
)

// TestEveryCauseIsCovered: some log or some attempt of the tests ends with each cause.
func TestEveryCauseIsCovered(t *testing.T) {
	tried := map[cause.Code]bool{}
	for _, f := range forms {
		tried[f.cause] = true
	}
	for _, d := range diagnoses {
		tried[d.want.Cause] = true
	}
	for _, c := range cause.All() {
		if !tried[c.Code] {
			t.Errorf("no test ends of %s: add a log to forms in diagnose_forms_test.go", c.Code)
		}
	}
}
