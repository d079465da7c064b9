package main

import (
	"fmt"
	"os"
	"syscall"

	"github.com/gpurun/gpurun/launcher/job"
)

// whereOff replaces gpurun with the command after it if GPURUN=off is set. It returns if it is not set, or if
// that fails.
func whereOff(args []string) error {
	dir, err := os.Getwd()
	if err != nil {
		return fmt.Errorf("find the working directory: %w", err)
	}
	instead, err := job.Off(args, os.Environ(), dir)
	if err != nil || instead == nil {
		return err
	}
	err = syscall.Exec(instead.Path, instead.Argv, os.Environ()) // which does not return
	return fmt.Errorf("execute %s: %w", instead.Path, err)
}
