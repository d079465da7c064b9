package wire

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/gpurun/gpurun/launcher/procfs"
)

// Hide closes gpurun's memory and environment to other processes of the same user, and removes the nodes'
// credentials from the environment. Ranks and other programs that gpurun runs do not inherit them, and cannot
// find them in /proc.
func Hide() error {
	if os.Getenv(secretVariable) != "" {
		if err := blank(secretVariable); err != nil {
			return fmt.Errorf("take %s out of gpurun's environment: %w", secretVariable, err)
		}
	}
	for _, entry := range os.Environ() {
		variable, _, _ := strings.Cut(entry, "=")
		if variable == secretVariable || variable == secretFileVariable || strings.HasPrefix(variable, "PMI_") || strings.HasPrefix(variable, "PMI2_") {
			if err := os.Unsetenv(variable); err != nil {
				return fmt.Errorf("take %s out of gpurun's environment: %w", variable, err)
			}
		}
	}
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return fmt.Errorf("close gpurun's memory to other processes: %w", err)
	}
	return nil
}

// blank overwrites a variable in the memory from which the kernel shows the original environment. Unsetting
// it does not change that memory.
func blank(variable string) error {
	from, to, err := startedWith()
	if err != nil || from == to {
		return err
	}
	mem, err := os.OpenFile("/proc/self/mem", os.O_RDWR, 0)
	if errors.Is(err, fs.ErrPermission) {
		return nil // it is closed already
	}
	if err != nil {
		return err
	}
	defer mem.Close()
	words := make([]byte, to-from)
	if _, err := io.ReadFull(io.NewSectionReader(mem, from, to-from), words); err != nil {
		return err
	}
	defer clear(words)
	at := from
	for word := range bytes.SplitAfterSeq(words, []byte{0}) {
		if value, ok := bytes.CutPrefix(word, []byte(variable+"=")); ok {
			if _, err := mem.WriteAt(make([]byte, len(value)), at+int64(len(word)-len(value))); err != nil {
				return err
			}
		}
		at += int64(len(word))
	}
	return nil
}

// startedWith is the memory range of the original environment, from fields 50 and 51 of /proc/PID/stat.
func startedWith() (from, to int64, err error) {
	stat, err := procfs.ReadStat(os.Getpid())
	if err != nil || stat.Field(51) == "" {
		return 0, 0, err
	}
	from, err = strconv.ParseInt(stat.Field(50), 10, 64)
	if err != nil {
		return 0, 0, err
	}
	to, err = strconv.ParseInt(stat.Field(51), 10, 64)
	return from, max(from, to), err
}
