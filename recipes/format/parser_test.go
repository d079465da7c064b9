package format

import (
	"os"
	"strings"
	"testing"
)

// TestParsersAreExplained: README.md explains how each parser reads arguments.
func TestParsersAreExplained(t *testing.T) {
	page, err := os.ReadFile("../README.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range parserNames() {
		if !strings.Contains(string(page), "\n| `\""+name+"\"` | ") {
			t.Errorf("README.md does not explain the parser %s", name)
		}
	}
}
