package python

import (
	"context"
	_ "embed"
	"fmt"
	"net"
	"strings"

	"github.com/gpurun/gpurun/launcher/environ"
)

//go:embed together.py
var togetherScript string

// Together is the output of one of several ranks that summed up what each has.
type Together struct {
	Sum   bool    `json:"sum"`   // the sum over all ranks was right
	Speed float64 `json:"speed"` // bytes a second over the slowest link, as NCCL's tests count them
}

// Meet has ranks of a backend sum up what each has; devices are their GPUs, or numbers
// without a meaning.
func Meet(ctx context.Context, by *Interpreter, backend string, devices []int) (Together, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return Together{}, fmt.Errorf("find a free port: %w", err)
	}
	port := l.Addr().(*net.TCPAddr).Port
	l.Close()
	t := Trial{Text: togetherScript, Env: environ.Vars{"NCCL_DEBUG": "WARN"}}
	for rank, device := range devices {
		t.Words = append(t.Words, strings.Fields(fmt.Sprintf("%s %d %d %d %d", backend, rank, len(devices), port, device)))
	}
	all, err := Run[Together](ctx, by, t)
	if err != nil {
		return Together{}, err
	}
	for _, one := range all {
		if !one.Sum {
			return one, nil
		}
	}
	return all[0], nil
}

// What NCCL's messages ask for where no GPU is at fault.
const (
	MoreShared = "docker: --shm-size=16g; Kubernetes: emptyDir medium: Memory at /dev/shm"
	MoreLocked = "ulimit -l unlimited, or docker run --ulimit memlock=-1"
	OtherBuild = "update the driver, or install a PyTorch for the one that is there"
)

var ncclFixes = []struct{ words, fix string }{
	{"/dev/shm", MoreShared}, {"No space left on device", MoreShared}, {"memlock", MoreLocked}, {"ibv_reg_mr", MoreLocked},
	{"no kernel image", OtherBuild}, {"driver version is insufficient", OtherBuild},
}

// NCCLFix is what the messages of ranks that failed ask for, empty for nothing known.
func NCCLFix(words string) string {
	for _, f := range ncclFixes {
		if strings.Contains(words, f.words) {
			return f.fix
		}
	}
	return ""
}
