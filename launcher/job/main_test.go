package job

import (
	"os"
	"strings"
	"testing"
	"time"
)

// TestMain keeps the defaults of the user and of the machine out of the tests.
func TestMain(m *testing.M) {
	if dir := os.Getenv(sharerRole); dir != "" {
		share(dir)
		return
	}
	if role := os.Getenv(writerRole); role != "" {
		dir, number, _ := strings.Cut(role, " ")
		writeFits(dir, number)
		return
	}
	os.Setenv("XDG_CONFIG_HOME", os.DevNull)
	SiteConfig = ""
	readingBudget = time.Minute // however busy this machine is
	os.Exit(m.Run())
}
