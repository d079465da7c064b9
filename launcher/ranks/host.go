// This file and disk.go measure the node's own memory and disks: RAM, the limits that
// control groups put on it, the kernel's counts of processes that the OOM killer
// ended, shared memory, and file systems.

package ranks

import (
	"fmt"
	"github.com/gpurun/gpurun/launcher/system"
	"io/fs"
	"os"
)

// A Machine is read through a file system whose root is "/", which a test can replace.
type Machine struct{ root fs.FS }

// ThisMachine is the machine that gpurun runs on.
func ThisMachine() Machine { return Machine{os.DirFS("/")} }

// MachineAt is a machine whose /proc and /sys lie below root.
func MachineAt(root fs.FS) Machine { return Machine{root} }

// A RAM is the memory of a machine as this process may use it. All figures are bytes.
type RAM struct {
	Total int64 // of the machine
	// Available is the memory that can still be allocated without swapping and without an OOM kill: the least
	// of the kernel's MemAvailable and the rest in each control group above this process.
	Available int64
	// Limit is the lowest limit of the control groups above us, 0 for none, the
	// point where version 2 begins to stall included. It may exceed Total.
	Limit int64
	// Group is the control group that sets Limit.
	Group string
}

// Whole is all of the machine's memory, or what a control group allows, in bytes, however much is
// in use.
func (m RAM) Whole() int64 {
	if m.Limit > 0 {
		return min(m.Total, m.Limit)
	}
	return m.Total
}

// Memory measures the machine. An error means that /proc/meminfo cannot be read;
// control groups that cannot be read do not limit.
func (m Machine) Memory() (RAM, error) {
	total, available, err := m.meminfo()
	if err != nil {
		return RAM{}, fmt.Errorf("measure memory: %w", err)
	}
	memory := RAM{Total: total, Available: available}
	for _, g := range m.groups() {
		limit := g.ceiling()
		if limit == 0 {
			continue
		}
		if memory.Limit == 0 || limit < memory.Limit {
			memory.Limit, memory.Group = limit, g.name()
		}
		if used, ok := g.working(); ok {
			memory.Available = min(memory.Available, max(limit-used, 0))
		}
	}
	return memory, nil
}

func (m Machine) meminfo() (total, available int64, err error) {
	text, err := fs.ReadFile(m.root, "proc/meminfo")
	if err != nil {
		return 0, 0, err
	}
	fields := system.ProcFields(text)
	total, available = system.ProcBytes(fields["MemTotal"]), system.ProcBytes(fields["MemAvailable"])
	if total == 0 {
		return 0, 0, fmt.Errorf("proc/meminfo has no MemTotal: %w", fs.ErrInvalid)
	}
	return total, available, nil
}
