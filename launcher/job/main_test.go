package job

import (
	"os"
	"testing"
	"time"
)

// TestMain keeps the user's defaults out of the tests.
func TestMain(m *testing.M) {
	os.Setenv("XDG_CONFIG_HOME", os.DevNull)
	readingBudget = time.Minute // however busy this machine is
	os.Exit(m.Run())
}
