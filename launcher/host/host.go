// Package host measures the node's own memory and disks: RAM, the limits that
// control groups put on it, the kernel's counts of processes that the OOM killer
// ended, shared memory, and file systems.
package host

import (
	"io/fs"
	"os"
)

// A Machine is read through a file system whose root is "/", which a test can replace.
type Machine struct{ root fs.FS }

// This is the machine that gpurun runs on.
func This() Machine { return Machine{os.DirFS("/")} }

// At is a machine whose /proc and /sys lie below root.
func At(root fs.FS) Machine { return Machine{root} }
