package ranks

import (
	"context"
	"fmt"
	"os"
	"strings"
	"syscall"
)

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
		_, err := Start(context.Background(), []Rank{{Argv: []string{"/bin/true"}}}, StartOptions{})
		fmt.Fprint(os.Stderr, err)
		syscall.Exit(0)
	}
}
