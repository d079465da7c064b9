package proc

import (
	"context"
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	// With the race detector a process that exits sleeps for a second first.
	if err := os.Setenv("GORACE", "atexit_sleep_ms=0"); err != nil {
		panic(err)
	}
	maybeMute()
	MaybeGuard()
	maybeHelper()
	goleak.VerifyTestMain(m)
}

const muteVariable = "PROC_TEST_MUTE"

// maybeMute simulates a program that does not call MaybeGuard first.
func maybeMute() {
	if !strings.HasPrefix(os.Args[0], guardName) {
		return
	}
	switch os.Getenv(muteVariable) {
	case "ends":
		syscall.Exit(0)
	case "hangs":
		forever()
	case "starts":
		_, err := Start(context.Background(), []Rank{{Argv: []string{"/bin/true"}}}, Options{})
		fmt.Fprint(os.Stderr, err)
		syscall.Exit(0)
	}
}
