package job

import (
	"context"
	"fmt"
	"runtime"
	"strconv"
	"strings"

	"github.com/gpurun/gpurun/launcher/errext"
	"github.com/gpurun/gpurun/strategy"
)

const (
	// leastData is the least RLIMIT_DATA where nothing is measured.
	leastData = 512 << 20
	// enoughData and enoughPerThread are what PyTorch alone never fills; it is not measured
	// for a ceiling above, which takes a second or two.
	enoughData, enoughPerThread = 896 << 20, 16 << 20
	// dataStep is what the least is rounded up to.
	dataStep = 64 << 20
)

// bare is what a process that trains does before it has a model: what it prints is its data
// then, in KiB. Some versions of OpenBLAS ask for their working memory for ever where there
// is none, and threads cannot be started.
const bare = `
import torch
torch.ones(256, 256) @ torch.ones(256, 256)
torch.ones(32768 * torch.get_num_threads()).exp()
print("\n" + [line.split()[1] for line in open("/proc/self/status") if line.startswith("VmData")][0])
`

// roomForTorch refuses a ceiling under which PyTorch itself has no room.
func (r Resolved) roomForTorch(ctx context.Context, bytes int64) error {
	if bytes >= enoughData+int64(runtime.NumCPU())*enoughPerThread {
		return nil
	}
	least, hint := int64(leastData), "a job that trains on the CPU needs at least 512MiB: below that OpenBLAS never returns instead of failing"
	if taken := r.bareData(ctx); taken > 0 {
		least = (taken/dataStep + 1) * dataStep
		hint = fmt.Sprintf("PyTorch alone takes %s of each rank's memory here: %dMiB is the least, and the model and its batch come on top of that", strategy.GiB(taken), least>>20)
	}
	if bytes < least {
		return errext.Errorf(hint, "limits.device_memory = %s is too small", strategy.GiB(bytes))
	}
	return ctx.Err()
}

// bareData is the data of a rank that has no model yet, in bytes, 0 where nobody can tell.
func (r Resolved) bareData(ctx context.Context) int64 {
	if r.python == nil {
		return 0
	}
	said, err := r.python.OutputInJob(ctx, bare, r.threads())
	words := strings.Fields(said)
	if err != nil || len(words) == 0 {
		return 0 // without PyTorch, for example, which the ranks will say
	}
	kib, _ := strconv.ParseInt(words[len(words)-1], 10, 32)
	return kib << 10
}

// threads are the variables that say how many threads a rank starts.
func (r Resolved) threads() map[string]string {
	if _, set := r.env.Lookup("OMP_NUM_THREADS"); set || r.plain || r.local <= 1 {
		return nil
	}
	return map[string]string{"OMP_NUM_THREADS": "1"} // package node sets it as torchrun does
}
