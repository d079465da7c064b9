package job

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/gpurun/gpurun/launcher/cluster"
	"github.com/gpurun/gpurun/launcher/commandline"
	"github.com/gpurun/gpurun/launcher/errext"
	"github.com/gpurun/gpurun/recipes/detect"
	"github.com/gpurun/gpurun/strategy"
)

// An Auto is the meaning of "auto" as a number of ranks, which depends on where it was set.
type Auto string

// The meanings of "auto".
const (
	// AutoDevices is torchrun's meaning: a rank for each usable GPU, or without GPUs for each processor.
	AutoDevices Auto = "devices"
	// AutoLauncher is the default of the typed launcher.
	AutoLauncher Auto = "launcher"
	// AutoTyped is for a command without a launcher: one process.
	AutoTyped Auto = "typed"
	// AutoScript is for a train.toml: a rank for each usable GPU if the script joins a process group, else
	// one process.
	AutoScript Auto = "script"
)

// startedBy records the launcher that the user typed. told: the command contained torchrun, or a number of
// ranks.
func (l *LaunchSettings) startedBy(launcher commandline.RankStarter, told bool) {
	l.Launcher = launcher
	switch {
	case launcher.Wrapper != "":
		l.Auto = AutoLauncher
	case !told && !l.Self:
		l.Auto = AutoTyped
	}
}

// askedFor records that a train.toml sets the number of ranks, for a command that may contain torchrun.
func (l *LaunchSettings) askedFor(torchrun bool) {
	switch {
	case l.Launcher.Wrapper != "":
	case torchrun:
		l.Launcher, l.Auto = commandline.RankStarter{Wrapper: "torchrun"}, AutoLauncher
	default:
		l.Auto = AutoScript
	}
}

// processes are the processes that gpurun starts on this node.
type processes struct {
	Ranks int // ranks on this node
	// Plain: one process without a rank number. It may use all devices, and start its own ranks.
	Plain bool
	// single: nothing shows that it trains together with the other nodes.
	single   bool
	WhyRanks string // why there are so many, for messages
	// OwnRanks: the process may start more ranks by itself, so that their number is not known.
	OwnRanks bool
	// unknown are warnings about facts that could not be read.
	unknown []string
}

// mostRanks bounds the ranks of one node: no machine has so many processors, and a mistyped number must not
// use up its processes.
const mostRanks = 4096

// count returns the processes of this node. A number, "gpu" and "cpu" have torchrun's meaning.
func (s Inspected) count(c recipeChoice) (processes, error) {
	l := s.Job.Launch
	n, err := strconv.Atoi(l.NprocPerNode)
	said := err == nil
	var p processes
	switch {
	case said && n > mostRanks:
		return processes{}, errext.Errorf("set nproc_per_node to the number of GPUs of a node",
			"nproc_per_node is %d: gpurun starts at most %d ranks on a node", n, mostRanks)
	case said:
		p = processes{Ranks: n, Plain: n == 1 && l.Launcher.Alone, WhyRanks: l.given(n)}
	case l.NprocPerNode == "gpu" && s.GPUs.Count == 0:
		return processes{}, errext.Errorf("set CUDA_VISIBLE_DEVICES, or ask for a number of processes",
			"nproc_per_node is \"gpu\", and no GPU is visible")
	case l.NprocPerNode == "gpu":
		p = processes{Ranks: s.GPUs.Count, WhyRanks: "one for each usable GPU, by nproc_per_node"}
	case l.NprocPerNode == "cpu":
		p = processes{Ranks: cpus(), WhyRanks: "one for each processor, by nproc_per_node"}
	case l.Self:
		p = processes{Ranks: max(s.GPUs.Count, 1), WhyRanks: "one for each usable GPU"}
	default:
		p = s.countAuto(c)
	}
	if l.Self {
		p.Plain, p.WhyRanks = true, "the job starts its ranks itself, by launch.ranks; "+p.WhyRanks
		return p, nil
	}
	return s.together(p)
}

// given is the reason for a given number of ranks of a node.
func (l LaunchSettings) given(n int) string {
	if w := l.Launcher.Wrapper; w != "" && w != "torchrun" {
		return fmt.Sprintf("%s starts %d on each node", w, n)
	}
	if n == 1 {
		return "nproc_per_node is 1, as torchrun has it by default"
	}
	return fmt.Sprintf("nproc_per_node is %d", n)
}

// Launches describes, for people, what gpurun starts on all nodes.
func (p processes) Launches(all int) string {
	if p.OwnRanks {
		return strategy.Count(all, "process")
	}
	return strategy.Count(all, "rank")
}

// WhyOf is why there are so many ranks on this node, of those of all nodes.
func (p processes) WhyOf(all int) string {
	if all > p.Ranks {
		return fmt.Sprintf("on this node, of %d: %s", all, p.WhyRanks)
	}
	return p.WhyRanks
}

// together makes the single process of each of several nodes a rank. It refuses a process that would train
// the whole job on each node.
func (s Inspected) together(p processes) (processes, error) {
	if j := s.Job; j.Kind == Program && !p.Plain && p.Ranks*max(s.Where.Nodes, 1) > 1 {
		if err := refused(commandline.Known.InShell(j.Argv)); err != nil {
			return processes{}, err
		}
	}
	switch {
	case s.Where.Nodes <= 1:
	case p.single:
		return processes{}, errext.Errorf(
			"start it by a launcher, gpurun torchrun …; or set GPURUN_NNODES=1 if each node is to train by itself",
			"%d nodes would each train the whole job: %s", s.Where.Nodes, p.WhyRanks)
	default:
		p.Plain = false
	}
	return p, nil
}

// countAuto returns the processes if no number is given.
func (s Inspected) countAuto(c recipeChoice) processes {
	l, gpus := s.Job.Launch, s.GPUs.Count
	switch {
	case l.Auto == AutoDevices && gpus == 0:
		return processes{Ranks: cpus(), WhyRanks: "one for each processor, as torchrun does without a GPU"}
	case l.Auto == AutoDevices:
		return processes{Ranks: gpus, WhyRanks: "one for each usable GPU, as torchrun does"}
	case l.Auto == AutoTyped:
		return s.asTyped()
	case l.Auto == AutoLauncher && gpus == 0 && l.Launcher.NUMA:
		return processes{Ranks: numaNodes(s.env["LOCAL_SIZE"]),
			WhyRanks: "one for each NUMA node, as " + l.Launcher.Wrapper + " does without a GPU"}
	case l.Auto == AutoLauncher && gpus == 0:
		return processes{Ranks: 1, Plain: l.Launcher.Alone,
			WhyRanks: "no GPU is usable, and " + l.Launcher.Wrapper + " starts one process then"}
	case l.Auto == AutoLauncher:
		return processes{Ranks: gpus, Plain: gpus == 1 &&
			l.Launcher.Alone, WhyRanks: "one for each usable GPU, as " + l.Launcher.Wrapper + " does"}
	}
	return s.countByScript(c)
}

// asTyped is the one process that the user has typed, which may start others.
func (s Inspected) asTyped() processes {
	return processes{Ranks: 1, Plain: true, single: true, OwnRanks: true,
		WhyRanks: "the command is one process, as it was typed; whether it starts ranks, it reports"}
}

// countByScript decides by the script: copies of a script that knows no ranks would write to the same folder.
func (s Inspected) countByScript(c recipeChoice) processes {
	var j detect.Joining
	joins := false
	unknown := guest(joinsGroup, func() error {
		j, joins = detect.Joins(s.sources(), s.reading.Code)
		return nil
	})
	if !joins && c.recipe.Name != "" && c.recipe.Name != ownScript {
		j, joins = detect.Joining{By: "the job is of " + c.recipe.Title}, true
	}
	switch {
	case j.Spawns:
		return processes{Ranks: 1, Plain: true, single: true, WhyRanks: j.By, unknown: unknown}
	case !joins:
		return processes{Ranks: 1, Plain: true, single: true, WhyRanks: "nothing shows that the job joins a process group",
			unknown: unknown}
	case s.GPUs.Count == 0:
		return processes{Ranks: 1, Plain: j.Alone, WhyRanks: j.By + ", and no GPU is usable", unknown: unknown}
	}
	return processes{Ranks: s.GPUs.Count, Plain: s.GPUs.Count == 1 &&
		j.Alone, WhyRanks: "one for each usable GPU: " + j.By, unknown: unknown}
}

// rankWarnings returns warnings about ranks that must share GPUs, and about variables of the job that ranks
// do not see.
func (s Inspected) rankWarnings(p processes) []string {
	sentences := p.unknown
	l, gpus := s.Job.Launch, s.GPUs
	if p.Ranks > gpus.Count && gpus.Count > 0 && !l.Self && l.NprocPerNode != "cpu" {
		sentences = append(sentences, fmt.Sprintf("%d ranks share %d visible GPUs (%s)", p.Ranks, gpus.Count, gpus.Source))
	}
	if !p.Plain && l.Auto != AutoDevices { // known already if torchrun was typed
		for _, sentence := range s.Job.idleVariables() {
			if !slices.Contains(s.Warnings, sentence) {
				sentences = append(sentences, sentence)
			}
		}
	}
	return sentences
}

// cpus returns the number of processors that this process may use.
func cpus() int {
	var set unix.CPUSet
	if err := unix.SchedGetaffinity(0, &set); err != nil {
		return runtime.NumCPU()
	}
	return set.Count()
}

// numaNodes returns the number of CPU devices as DeepSpeed counts them
// (deepspeed/accelerator/cpu_accelerator.py): the given number, else the NUMA nodes that numactl shows.
func numaNodes(told string) int {
	if n, err := strconv.Atoi(told); err == nil && n > 0 {
		return n
	}
	if _, err := exec.LookPath("numactl"); err != nil {
		return 1
	}
	nodes := 0
	lists, _ := filepath.Glob("/sys/devices/system/node/node[0-9]*/cpulist") // no error: the pattern is valid
	for _, list := range lists {
		if text, err := os.ReadFile(list); err == nil && len(text) > 1 {
			nodes++
		}
	}
	return max(nodes, 1)
}

// place returns which node of which launch this is. It refuses settings that cannot work.
func (j *Job) place(environ []string) (cluster.Placement, error) {
	place, err := j.where(environ)
	if err != nil {
		return cluster.Placement{}, err
	}
	return place, place.Refuse()
}

// Numbered returns the job. If it may be on any node, because nothing is going to be started, this node counts as
// the first where no setting numbers it.
func (j *Job) Numbered(onAny bool) *Job {
	if onAny && j.nodes.Default.Value == "" {
		j.nodes.Default = commandline.NodeValue{Value: "0", By: "the first node"}
	}
	return j
}

// Follows reports whether gpurun on another node decides for this job. It ignores contradictory variables,
// which Prepare reports.
func (j *Job) Follows(environ []string) bool {
	place, err := j.where(environ)
	return err == nil && place.NodeRank > 0
}

// where returns which node this is, by the job's command and an environment.
func (j *Job) where(environ []string) (cluster.Placement, error) {
	flags, environ := j.nodes, slices.Clone(environ)
	for _, s := range []*commandline.NodeValue{&flags.Count, &flags.Rank, &flags.Default, &flags.Head, &flags.ID} {
		if strings.HasPrefix(s.By, "PET_") { // from a variable, also if the command line has it
			environ = append(environ, s.By+"="+s.Value)
			*s = commandline.NodeValue{}
		}
	}
	return cluster.DetectLaunch(environ, flags)
}

// nodeVars returns the variables with which the typed launcher numbers a rank's node. torchrun's own,
// GROUP_RANK and GROUP_WORLD_SIZE, are set elsewhere, with the ranks' numbers.
func (s Inspected) nodeVars(local int) commandline.Environ {
	vars, names := commandline.Environ{}, s.Job.Launch.Launcher.Vars
	for name, value := range map[string]int{names.Rank: s.Where.NodeRank, names.Count: s.Where.Nodes, names.Local: local} {
		if name != "" {
			vars[name] = strconv.Itoa(value)
		}
	}
	return vars
}

// WithoutNumber returns typed words without this node's number, if a Slurm step numbers the nodes: a line
// that starts all nodes has no number.
func (p *Prepared) WithoutNumber(typed []string) []string {
	if place := p.Where; place.Kind != cluster.SlurmStep || place.Nodes == 1 {
		return typed
	}
	return unnumbered(typed, len(p.Job.Argv))
}

// unnumbered returns the words of a command without those that differ between nodes, so that all nodes have
// the same job. rest is the number of the script's words at the end.
func unnumbered(words []string, rest int) []string {
	var left []string
	for i := 0; i < len(words); i++ {
		name, _, attached := strings.Cut(strings.ReplaceAll(words[i], "_", "-"), "=")
		if i >= len(words)-rest || name != "--node-rank" && name != "--machine-rank" {
			left = append(left, words[i])
		} else if !attached {
			i++
		}
	}
	return left
}
