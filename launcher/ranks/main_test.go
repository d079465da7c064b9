package ranks

import (
	"fmt"
	"os"
	"testing"

	"go.uber.org/goleak"
)

// TestMain lets the test binary be the child that a test starts: a guard, a rank, a helper of a rank, a process
// that is killed for its memory, or a gpurun that is killed while it writes a log.
func TestMain(m *testing.M) {
	// With the race detector a process that exits sleeps for a second first.
	if err := os.Setenv("GORACE", "atexit_sleep_ms=0"); err != nil {
		panic(err)
	}
	maybeMute()
	MaybeGuard()
	maybeHelper()
	if role := os.Getenv(childRole); role != "" {
		os.Exit(playRank(role))
	}
	switch os.Getenv(role) {
	case "watcher":
		watch()
		return
	case "glutton":
		devour()
		return
	}
	if path := os.Getenv(writesVariable); path != "" {
		writeLogs(path)
	}
	goleak.VerifyTestMain(m)
}

// writesVariable is the path of a log that a child writes until it is killed.
const writesVariable = "GPURUN_TEST_WRITES"

func writeLogs(path string) {
	for {
		w, err := CreateLog(path, 16*LeastLog)
		if err != nil {
			panic(err)
		}
		for i := range 6000 {
			if _, err := fmt.Fprintf(w, "line %06d\n", i); err != nil {
				panic(err)
			}
		}
		if err := w.Close(); err != nil {
			panic(err)
		}
	}
}
