package job

import (
	"os"
	"testing"
)

// TestMain keeps the defaults of whoever runs the tests out of them.
func TestMain(m *testing.M) {
	os.Setenv("XDG_CONFIG_HOME", os.DevNull)
	os.Exit(m.Run())
}
