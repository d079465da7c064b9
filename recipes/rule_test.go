package recipes

import (
	"os"
	"strings"
	"testing"

	"github.com/gpurun/gpurun/test/testenv"
)

// TestRulesAreExplained: README.md explains each rule.
func TestRulesAreExplained(t *testing.T) {
	page, err := os.ReadFile("README.md")
	testenv.Check(t, err)
	for name := range rules {
		if !strings.Contains(string(page), "\n| `"+name+"` | ") {
			t.Errorf("README.md does not explain the rule %s", name)
		}
	}
}
