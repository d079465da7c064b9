package doctor

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"strconv"
	"strings"

	"github.com/gpurun/gpurun/launcher/proc"
	"github.com/gpurun/gpurun/launcher/python"
)

// limitChecks: what the kernel allows each rank.
var limitChecks = []check{
	{name: "locked memory", look: lockedMemory},
	{name: "open files", look: openFiles},
	{name: "processes", look: processes},
}

// limits are soft limits, as a rank gets them.
type limits struct{ locked, files, processes uint64 }

// unlimited is no limit.
const unlimited = math.MaxUint64

// readLimits asks a process that was started as ranks are: gpurun's own limits are not
// theirs, since Go raises that of open files for itself.
func (p *patient) readLimits(ctx context.Context) (limits, error) {
	all, err := python.Start(ctx, []proc.Rank{{Argv: []string{"cat", "/proc/self/limits"}, Env: p.env.Words()}})
	if err != nil {
		return limits{}, fmt.Errorf("read the limits: %w", err)
	}
	return parseLimits(all[0].Out)
}

// parseLimits reads lines such as "Max open files   1024   524288   files".
func parseLimits(text string) (limits, error) {
	soft := map[string]uint64{}
	for lines := bufio.NewScanner(strings.NewReader(text)); lines.Scan(); {
		for _, name := range []string{"Max locked memory", "Max open files", "Max processes"} {
			rest, ok := strings.CutPrefix(lines.Text(), name)
			if fields := strings.Fields(rest); ok && len(fields) > 1 {
				if n, err := strconv.ParseUint(fields[0], 10, 64); err == nil {
					soft[name] = n
				} else if fields[0] == "unlimited" {
					soft[name] = unlimited
				}
			}
		}
	}
	if len(soft) != 3 {
		return limits{}, errors.New("read the limits: /proc/self/limits does not say them")
	}
	return limits{soft["Max locked memory"], soft["Max open files"], soft["Max processes"]}, nil
}

func lockedMemory(_ context.Context, p *patient) Result {
	l, err := p.limits()
	if err != nil {
		return skip("%v", err)
	}
	if l.locked == unlimited {
		return found("unlimited")
	}
	const fix = "ulimit -l unlimited; systemd: LimitMEMLOCK; docker: --ulimit memlock=-1"
	text := size(int64(min(l.locked, math.MaxInt64)))
	if cards, _ := fs.ReadDir(p.root, "sys/class/infiniband"); len(cards) > 0 {
		return problem(fix, "%s, and NCCL registers more with %s (InfiniBand)", text, cards[0].Name())
	}
	if p.nvme != "" {
		return warn(fix, "%s, and offload to NVMe locks its buffers", text)
	}
	return found("%s, enough without InfiniBand", text)
}

const (
	fewFiles     = 1024 // what many shells give: data loaders pass tensors as open files
	enoughFiles  = 4096
	fewProcesses = 256 // a rank with its threads, a few loader workers, and theirs
)

func openFiles(_ context.Context, p *patient) Result {
	l, err := p.limits()
	if err != nil {
		return skip("%v", err)
	}
	const fix = "ulimit -n 65536; systemd: LimitNOFILE; docker: --ulimit nofile=65536"
	switch {
	case l.files < fewFiles:
		return problem(fix, "%d: less than a rank with data loaders needs", l.files)
	case l.files < enoughFiles:
		return warn(fix, "%d: several loader workers may need more (too many open files)", l.files)
	case l.files == unlimited:
		return found("unlimited")
	}
	return found("%d", l.files)
}

// processes are limited for the user, and by control groups; threads count, too.
func processes(_ context.Context, p *patient) Result {
	l, err := p.limits()
	if err != nil {
		return skip("%v", err)
	}
	room, what := l.processes, "for the user"
	if g := p.host.Processes(); g.Limit > 0 && uint64(max(g.Limit-g.Used, 0)) < room {
		room, what = uint64(max(g.Limit-g.Used, 0)), fmt.Sprintf("of %d (cgroup %s)", g.Limit, g.Group)
	}
	if room == unlimited {
		return found("unlimited")
	}
	const fix = "ulimit -u 65536; systemd: TasksMax; docker: --pids-limit=-1"
	text := fmt.Sprintf("%d more %s", room, what)
	if what == "for the user" {
		text = fmt.Sprintf("%d %s", room, what)
	}
	need := fewProcesses * uint64(p.ranks())
	switch {
	case room < need/4:
		return problem(fix, "%s: too few for %s, whose threads count, too", text, counted(p.ranks(), "rank"))
	case room < need:
		return warn(fix, "%s: few for %s, whose threads count, too", text, counted(p.ranks(), "rank"))
	}
	return found("%s", text)
}
