package gpu

import "os"

// initialNamespace is the kernel's own namespace of process numbers
// (PROC_PID_INIT_INO in include/linux/proc_ns.h): the driver numbers processes by it.
const initialNamespace = "pid:[4026531836]"

// Used is the memory of a process on the job's devices by the driver's account: PyTorch's,
// the context, the libraries and all else outside its allocator. It is 0 where that is not
// known: in a container the driver's process numbers are those of another namespace. It does
// not wait for NVML.
func (b *Baseline) Used(pid int) int64 {
	if own, err := os.Readlink("/proc/self/ns/pid"); err != nil || own != initialNamespace {
		return 0
	}
	select {
	case <-b.read:
		return b.usedBy(pid)
	default:
		return 0
	}
}

func (b *Baseline) usedBy(pid int) (bytes int64) {
	if b.nvml == nil {
		return 0
	}
	for _, d := range b.devices {
		processes, err := b.nvml.Processes(d)
		if err != nil {
			return 0 // half of it would be a wrong figure
		}
		for _, p := range processes {
			if p.PID == pid {
				bytes += p.Bytes
			}
		}
	}
	return bytes
}
