package proc

import (
	"os"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	// With the race detector a process that exits sleeps for a second first.
	if err := os.Setenv("GORACE", "atexit_sleep_ms=0"); err != nil {
		panic(err)
	}
	MaybeGuard()
	maybeZoo()
	goleak.VerifyTestMain(m)
}
