package job

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/gpurun/gpurun/launcher/commandline"
	"github.com/gpurun/gpurun/launcher/errext"
	"github.com/gpurun/gpurun/recipes/script"
)

// An Auto is what "auto" means as a number of ranks, which depends on who said it.
type Auto string

// The meanings of "auto".
const (
	// AutoDevices is torchrun's: a rank for each usable GPU, without any for each
	// processor.
	AutoDevices Auto = "devices"
	// AutoLauncher is what the launcher that was typed starts where it is not told.
	AutoLauncher Auto = "launcher"
	// AutoTyped is a command without a launcher: it is one process.
	AutoTyped Auto = "typed"
	// AutoScript is a train.toml's: a rank for each usable GPU where the script joins
	// a process group, else one process.
	AutoScript Auto = "script"
)

// A Launcher is how a launcher that was typed starts ranks.
type Launcher struct {
	Name string
	// Alone: a single rank is a process that has no rank.
	Alone bool
	// NUMA: without GPUs there is a rank for each NUMA node.
	NUMA bool
	// Vars are the variables by which it tells a rank of its node.
	Vars commandline.NodeVars
}

// startedBy takes over who would have started a command as it was typed; told says
// that torchrun, or a number of ranks, was in it.
func (l *Launch) startedBy(launcher Launcher, told bool) {
	l.Launcher = launcher
	switch {
	case launcher.Name != "":
		l.Auto = AutoLauncher
	case !told && !l.Self:
		l.Auto = AutoTyped
	}
}

// askedFor: a train.toml says how many ranks there are, over a command in which
// torchrun may have been typed.
func (l *Launch) askedFor(torchrun bool) {
	switch {
	case l.Launcher.Name != "":
	case torchrun:
		l.Launcher, l.Auto = Launcher{Name: "torchrun"}, AutoLauncher
	default:
		l.Auto = AutoScript
	}
}

// processes is what gpurun starts on this node.
type processes struct {
	local int // ranks on this node
	// plain: it is one process, which is given no rank: it may use all devices, and
	// start ranks of its own.
	plain bool
	// single: nothing shows that it would train together with the other nodes.
	single bool
	why    string // there are that many, for people
	// unknown are warnings of what could not be read about the ranks.
	unknown []string
}

// mostRanks bounds the ranks of one node: no machine has as many processors, and a
// number that was mistyped must not use up its processes.
const mostRanks = 4096

// count is how many processes there are. A number, "gpu" and "cpu" mean what they
// mean to torchrun.
func (s Inspected) count(c choice) (processes, error) {
	l := s.job.Launch
	n, said := l.NprocPerNode.Number()
	var p processes
	switch {
	case said && n > mostRanks:
		return processes{}, errext.Errorf("set nproc_per_node to the number of GPUs of a node", "nproc_per_node is %d: gpurun starts at most %d ranks on a node", n, mostRanks)
	case said:
		p = processes{local: n, plain: n == 1 && l.Launcher.Alone, why: fmt.Sprintf("nproc_per_node is %d", n)}
	case l.NprocPerNode == "gpu" && s.gpus.Count == 0:
		return processes{}, errext.Errorf("set CUDA_VISIBLE_DEVICES, or ask for a number of processes", "nproc_per_node is \"gpu\", and no GPU is visible")
	case l.NprocPerNode == "gpu":
		p = processes{local: s.gpus.Count, why: "one for each usable GPU, by nproc_per_node"}
	case l.NprocPerNode == "cpu":
		p = processes{local: cpus(), why: "one for each processor, by nproc_per_node"}
	case l.Self:
		p = processes{local: max(s.gpus.Count, 1), why: "one for each usable GPU"}
	default:
		p = s.countAuto(c)
	}
	if l.Self {
		p.plain, p.why = true, "the job starts its ranks itself, by launch.ranks; "+p.why
		return p, nil
	}
	return s.together(p)
}

// together makes a single process of each of several nodes a rank, and refuses one that
// would train the whole job there.
func (s Inspected) together(p processes) (processes, error) {
	if j := s.job; j.Kind == Program && !p.plain && p.local*max(s.place.Nodes, 1) > 1 {
		if err := refused(commandline.Known.InShell(j.Argv)); err != nil {
			return processes{}, err
		}
	}
	switch {
	case s.place.Nodes <= 1:
	case p.single:
		return processes{}, errext.Errorf("start it by a launcher, gpurun torchrun …; or say GPURUN_NNODES=1 where each node is to train by itself",
			"%d nodes would each train the whole job: %s", s.place.Nodes, p.why)
	default:
		p.plain = false
	}
	return p, nil
}

// countAuto is how many there are where nobody gives a number.
func (s Inspected) countAuto(c choice) processes {
	l, gpus := s.job.Launch, s.gpus.Count
	switch {
	case l.Auto == AutoDevices && gpus == 0:
		return processes{local: cpus(), why: "one for each processor, as torchrun does without a GPU"}
	case l.Auto == AutoDevices:
		return processes{local: gpus, why: "one for each usable GPU, as torchrun does"}
	case l.Auto == AutoTyped:
		return processes{local: 1, plain: true, single: true, why: "the command is one process, as it was typed"}
	case l.Auto == AutoLauncher && gpus == 0 && l.Launcher.NUMA:
		return processes{local: numaNodes(s.env["LOCAL_SIZE"]), why: "one for each NUMA node, as " + l.Launcher.Name + " does without a GPU"}
	case l.Auto == AutoLauncher && gpus == 0:
		return processes{local: 1, plain: l.Launcher.Alone, why: "no GPU is usable, and " + l.Launcher.Name + " starts one process then"}
	case l.Auto == AutoLauncher:
		return processes{local: gpus, plain: gpus == 1 && l.Launcher.Alone, why: "one for each usable GPU, as " + l.Launcher.Name + " does"}
	}
	return s.countByScript(c)
}

// countByScript goes by what the script does: copies of one that knows nothing of
// ranks would write the same folder.
func (s Inspected) countByScript(c choice) processes {
	var j script.Joining
	joins := false
	unknown := guest(joinsGroup, func() error {
		j, joins = script.Joins(s.sources())
		return nil
	})
	if !joins && c.recipe.Name != "" {
		j, joins = script.Joining{By: "the job is of " + c.recipe.Title}, true
	}
	switch {
	case j.Spawns:
		return processes{local: 1, plain: true, single: true, why: j.By, unknown: unknown}
	case !joins && s.source == nil:
		return processes{local: 1, plain: true, single: true, why: "nothing shows that the job joins a process group", unknown: unknown}
	case !joins:
		return processes{local: 1, plain: true, single: true, why: "neither " + filepath.Base(s.sourcePath) + " nor what it imports joins a process group", unknown: unknown}
	case s.gpus.Count == 0:
		return processes{local: 1, plain: j.Alone, why: j.By + ", and no GPU is usable", unknown: unknown}
	}
	return processes{local: s.gpus.Count, plain: s.gpus.Count == 1 && j.Alone, why: "one for each usable GPU: " + j.By, unknown: unknown}
}

// rankWarnings are sentences about ranks that have to share GPUs, and about variables
// of the job that ranks do not see.
func (s Inspected) rankWarnings(p processes) []string {
	sentences := p.unknown
	l, gpus := s.job.Launch, s.gpus
	if p.local > gpus.Count && gpus.Count > 0 && !l.Self && l.NprocPerNode != "cpu" {
		sentences = append(sentences, fmt.Sprintf("%d ranks share %d visible GPUs (%s)", p.local, gpus.Count, gpus.Source))
	}
	if !p.plain && l.Auto != AutoDevices { // where torchrun was typed, it has been said
		for _, sentence := range s.job.idleVariables() {
			if !slices.Contains(s.warnings, sentence) {
				sentences = append(sentences, sentence)
			}
		}
	}
	return sentences
}

// cpus is the number of processors that this process may run on.
func cpus() int {
	var set unix.CPUSet
	if err := unix.SchedGetaffinity(0, &set); err != nil {
		return runtime.NumCPU()
	}
	return set.Count()
}

// numaNodes is how many devices DeepSpeed sees in processors
// (deepspeed/accelerator/cpu_accelerator.py): as many as it is told, else the NUMA
// nodes that numactl shows it.
func numaNodes(told string) int {
	if n, err := strconv.Atoi(told); err == nil && n > 0 {
		return n
	}
	if _, err := exec.LookPath("numactl"); err != nil {
		return 1
	}
	nodes := 0
	lists, _ := filepath.Glob("/sys/devices/system/node/node[0-9]*/cpulist") // the pattern is right
	for _, list := range lists {
		if text, err := os.ReadFile(list); err == nil && len(text) > 1 {
			nodes++
		}
	}
	return max(nodes, 1)
}

// Plain reports whether the job is one process that is given no rank.
func (p *Prepared) Plain() bool { return p.resolved.plain }

// WhyRanks says for people why there are as many ranks as there are.
func (p *Prepared) WhyRanks() string { return p.resolved.why }
