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

// Together is what one of several ranks tells that have summed up what each has.
type Together struct {
	Sum   bool    `json:"sum"`   // the sum over all ranks was right
	Speed float64 `json:"speed"` // bytes a second over the slowest link, as NCCL's tests count them
}

// Meet lets ranks of a backend sum up what each has; devices are their GPUs, or numbers
// without a meaning.
func Meet(ctx context.Context, by *Interpreter, backend string, devices []int) (Together, error) {
	port, err := freePort()
	if err != nil {
		return Together{}, err
	}
	s := Trial{Text: togetherScript, Env: environ.Vars{"NCCL_DEBUG": "WARN"}}
	all := make([]Together, len(devices))
	answers := make([]any, len(devices))
	for rank, device := range devices {
		s.Words, answers[rank] = append(s.Words, []string{backend, fmt.Sprint(rank), fmt.Sprint(len(devices)), fmt.Sprint(port), fmt.Sprint(device)}), &all[rank]
	}
	if err := s.Run(ctx, by, answers...); err != nil {
		return Together{}, err
	}
	for _, one := range all {
		if !one.Sum {
			return one, nil
		}
	}
	return all[0], nil
}

// freePort finds a port for the ranks' rendezvous.
func freePort() (int, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, fmt.Errorf("find a free port: %w", err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port, nil
}

// What NCCL's own words ask for that is no GPU's fault.
const (
	MoreShared = "docker: --shm-size=16g; Kubernetes: emptyDir medium: Memory at /dev/shm"
	MoreLocked = "ulimit -l unlimited, or docker run --ulimit memlock=-1"
	OtherBuild = "update the driver, or install a PyTorch for the one that is there"
)

// NCCLFix is what the words of ranks that failed ask for, empty where they do not say it.
func NCCLFix(words string) string {
	switch {
	case strings.Contains(words, "/dev/shm"), strings.Contains(words, "No space left on device"):
		return MoreShared
	case strings.Contains(words, "memlock"), strings.Contains(words, "ibv_reg_mr"):
		return MoreLocked
	case strings.Contains(words, "no kernel image"), strings.Contains(words, "driver version is insufficient"):
		return OtherBuild
	}
	return ""
}
