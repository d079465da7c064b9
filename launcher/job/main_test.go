package job

import (
	"os"
	"testing"
	"time"
)

// TestMain keeps the defaults of the user and of the machine out of the tests.
func TestMain(m *testing.M) {
	os.Setenv("XDG_CONFIG_HOME", os.DevNull)
	SiteConfig = ""
	readingBudget = time.Minute // however busy this machine is
	os.Exit(m.Run())
}
