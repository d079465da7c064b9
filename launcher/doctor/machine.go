package doctor

import (
	"cmp"
	"context"
	"fmt"
	"io/fs"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gpurun/gpurun/launcher/errext"
	"github.com/gpurun/gpurun/launcher/job"
	"github.com/gpurun/gpurun/launcher/ranks"

	"github.com/gpurun/gpurun/launcher/commandline"
	"github.com/gpurun/gpurun/launcher/python"
	"github.com/gpurun/gpurun/strategy"
)

const (
	// littleMemory is about the host memory that PyTorch and its libraries need in one rank.
	littleMemory = 2 << 30
	// littleShared is the default of containers, enough for two batches of images.
	littleShared = 64 << 20
	// enoughShared is as much as data loaders with several workers may need.
	enoughShared = 1 << 30

	fewFiles     = 1024 // the limit of many shells: data loaders pass tensors as open files
	enoughFiles  = 4096
	fewProcesses = 256 // a rank with its threads, a few loader workers, and theirs
)

func memory(_ context.Context, p *patient) Result {
	const fix = "Slurm: --mem; docker: --memory; Kubernetes: resources.limits.memory"
	m, err := p.host.Memory()
	if err != nil {
		return problem("mount /proc", "%v", err)
	}
	text := fmt.Sprintf("%s available of %s", strategy.GiB(m.Available), strategy.GiB(m.Total))
	if m.Limit > 0 && m.Limit < m.Total {
		text += fmt.Sprintf(", at most %s (cgroup %s)", strategy.GiB(m.Limit), m.Group)
	}
	var largest int64
	for _, d := range p.cards().view.Devices {
		largest = max(largest, d.Total)
	}
	switch ranks := int64(p.ranks()); {
	case m.Available < littleMemory/2*ranks:
		return problem(fix, "%s, for %s", text, counted(int(ranks), "rank"))
	case m.Available < littleMemory*ranks:
		return warn(fix, "%s, for %s", text, counted(int(ranks), "rank"))
	case m.Available < largest:
		return warn(fix, "%s, less than a GPU has (%s): offload and checkpoints may not fit", text, strategy.GiB(largest))
	}
	return found("%s", text)
}

// ranks returns the number of ranks on this machine: the job's, or one per GPU.
func (p *patient) ranks() int {
	if p.prepared != nil {
		return max(p.prepared.Ranks, 1)
	}
	return max(p.cards().count(), 1)
}

func sharedMemory(_ context.Context, p *patient) Result {
	disk, err := ranks.DiskAt(p.shm)
	if err == nil {
		err = unix.Access(p.shm, unix.W_OK|unix.X_OK)
	}
	if err != nil {
		return problem(python.MoreShared, "%s cannot be used: %v", p.shm, err)
	}
	text := fmt.Sprintf("%s free of %s", size(disk.Free), size(disk.Total))
	switch {
	case !disk.RAM:
		return warn("mount a tmpfs there", "%s is on a disk: NCCL and data loaders are slow", p.shm)
	case disk.Free <= littleShared:
		return problem(python.MoreShared, "%s: NCCL and data loaders end with a bus error", text)
	case disk.Free < enoughShared:
		return warn(python.MoreShared, "%s: data loaders with several workers need more", text)
	}
	return found("%s", text)
}

// size formats bytes for people, in MiB where GiB would be too coarse.
func size(bytes int64) string {
	if bytes < 1<<30 {
		return fmt.Sprintf("%.0f MiB", float64(bytes)/(1<<20))
	}
	return strategy.GiB(bytes)
}

func clock(context.Context, *patient) Result {
	var t unix.Timex
	state, err := unix.Adjtimex(&t)
	if err != nil {
		return skip("cannot read whether it is set: %v", err)
	}
	return clockOf(state, t)
}

// clockOf judges the kernel's answer (adjtimex(2)).
func clockOf(state int, t unix.Timex) Result {
	if state == unix.TIME_ERROR || t.Status&unix.STA_UNSYNC != 0 {
		return warn("start chrony or systemd-timesyncd: timedatectl set-ntp true",
			"not synchronised: times in logs of several machines do not compare, certificates may fail")
	}
	return found("synchronised, within %s", (time.Duration(t.Maxerror) * time.Microsecond).Round(time.Millisecond))
}

// limits are the soft limits of a rank.
type limits struct{ locked, files, processes uint64 }

// unlimited is no limit.
const unlimited = math.MaxUint64

func limitsKnown(p *patient) string {
	if _, err := p.limits(); err != nil {
		return err.Error()
	}
	return ""
}

// readLimits reads the limits of a process that is started like a rank. gpurun's own limits differ, since Go
// raises its limit of open files.
func (p *patient) readLimits(ctx context.Context) (limits, error) {
	all, err := ranks.RunBeside(ctx, []ranks.Rank{{Argv: []string{"cat", "/proc/self/limits"}, Env: p.env.Words()}})
	if err != nil {
		return limits{}, fmt.Errorf("read the limits: %w", err)
	}
	return parseLimits(all[0].Out)
}

// parseLimits reads lines such as "Max open files   1024   524288   files".
func parseLimits(text string) (l limits, err error) {
	for name, into := range map[string]*uint64{"Max locked memory": &l.locked, "Max open files": &l.files,
		"Max processes": &l.processes} {
		_, rest, _ := strings.Cut(text, name)
		soft, _, _ := strings.Cut(strings.TrimLeft(rest, " "), " ")
		if soft == "unlimited" {
			*into = unlimited
		} else if *into, err = strconv.ParseUint(soft, 10, 64); err != nil {
			return limits{}, fmt.Errorf("read the limits: /proc/self/limits lacks %q", name)
		}
	}
	return l, nil
}

func lockedMemory(_ context.Context, p *patient) Result {
	l, _ := p.limits()
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

func openFiles(_ context.Context, p *patient) Result {
	const fix = "ulimit -n 65536; systemd: LimitNOFILE; docker: --ulimit nofile=65536"
	switch l, _ := p.limits(); {
	case l.files < fewFiles:
		return problem(fix, "%d: less than a rank with data loaders needs", l.files)
	case l.files < enoughFiles:
		return warn(fix, "%d: several loader workers may need more (too many open files)", l.files)
	case l.files == unlimited:
		return found("unlimited")
	default:
		return found("%d", l.files)
	}
}

// processes checks the limits on processes, by user and by control group. Threads count too.
func processes(_ context.Context, p *patient) Result {
	const fix = "ulimit -u 65536; systemd: TasksMax; docker: --pids-limit=-1"
	l, _ := p.limits()
	left, text := l.processes, fmt.Sprintf("%d for the user", l.processes)
	if g := p.host.Processes(); g.Limit > 0 && uint64(max(g.Limit-g.Used, 0)) < left {
		left = uint64(max(g.Limit-g.Used, 0))
		text = fmt.Sprintf("%d more of %d (cgroup %s)", left, g.Limit, g.Group)
	}
	switch need := fewProcesses * uint64(p.ranks()); {
	case left == unlimited:
		return found("unlimited")
	case left < need/4:
		return problem(fix, "%s: too few for %s, whose threads count, too", text, counted(p.ranks(), "rank"))
	case left < need:
		return warn(fix, "%s: few for %s, whose threads count, too", text, counted(p.ranks(), "rank"))
	}
	return found("%s", text)
}

// configurations checks the defaults for all jobs, of the site and of the user, which each run reads.
func configurations(_ context.Context, p *patient) Result {
	j, err := job.Configured(commandline.ParseEnviron(p.environ))
	if err == nil {
		err = j.Refused()
	}
	switch {
	case err != nil:
		return problem(cmp.Or(errext.Hint(err), "correct the file: gpurun refuses each run until then"), "%s",
			withoutExcerpts(err))
	case len(j.Warnings) > 0:
		return warn("gpurun help config shows what counts", "%s", strings.Join(j.Warnings, "; "))
	case len(j.Settings()) == 0:
		return found("none")
	}
	return found("%s (gpurun help config)", counted(len(j.Settings()), "key"))
}

// withoutExcerpts returns the lines of an error without the lines of the file below each.
func withoutExcerpts(err error) string {
	lines := slices.DeleteFunc(strings.Split(err.Error(), "\n"),
		func(line string) bool { return strings.HasPrefix(line, " ") })
	return strings.Join(lines, "; ")
}
