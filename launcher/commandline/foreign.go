package commandline

import (
	"github.com/gpurun/gpurun/launcher/lazy"
	"path"
	"slices"
	"strings"
)

// A Foreign is a program that starts a command elsewhere, or several times: on other nodes, in a container,
// later. gpurun in front of it would supervise the wrong process. It belongs in front of the command that the
// program starts.
type Foreign struct {
	Wrapper
	Aliases []string // other names of the program
	// Where describes where the command runs, such as "on other nodes".
	Where string
	// Dashes: the command follows a "--".
	Dashes bool
	// Batch: its argument is a script, which is started later. Wrap is its option whose value is a command.
	Batch bool
	Wrap  string
	// Needs describes what else is necessary.
	Needs string
	// Once is the word of mpirun's options that starts the command once on each node; Mpirun has it.
	Once string
}

// A MisplacedCommand is a command line that gpurun must not precede.
type MisplacedCommand struct {
	*Foreign
	Name string // as written
	// Line is the line to type instead; empty if the beginning of the command is not certain.
	Line string
	// Script is the file that is started later; empty for none.
	Script string
}

// Misplaced reports whether the first word is a program that starts commands elsewhere. own are gpurun and
// its flags. before are the words of wrappers that stay in front.
func (t *ProgramTable) Misplaced(before, words, own []string) (MisplacedCommand, bool) {
	if len(words) == 0 {
		return MisplacedCommand{}, false
	}
	name := path.Base(words[0])
	for i := range foreign {
		f := &foreign[i]
		if f.Command[0] != name && !slices.Contains(f.Aliases, name) || !f.subcommand(words[1:]) {
			continue
		}
		m := MisplacedCommand{Foreign: f, Name: strings.Join(append([]string{name}, f.Command[1:]...), " ")}
		m.locate(before, words, own)
		return m, true
	}
	return MisplacedCommand{}, false
}

// subcommand reports whether the words contain the subcommand that makes the program a Foreign.
func (f *Foreign) subcommand(words []string) bool {
	for _, sub := range f.Command[1:] {
		at := slices.IndexFunc(words, func(w string) bool { return w == sub || slices.Contains(f.Subcommands, w) })
		if at < 0 {
			return false
		}
		words = words[at+1:]
	}
	return true
}

// locate finds the command, and writes the line with gpurun in front of it.
func (m *MisplacedCommand) locate(before, words, own []string) {
	if m.Once != "" && !slices.Contains(words, m.Once) {
		m.Line = Mpirun
		return
	}
	put := func(at int) { m.Line = Paste(slices.Concat(before, words[:at], own, words[at:])...) }
	if m.Dashes {
		if at := slices.Index(words, "--"); at >= 0 && at+1 < len(words) {
			put(at + 1)
		}
		return
	}
	// An unknown option with its value in the same word is one word.
	known := slices.Clone(words)
	for i, w := range known {
		if name, _, assigned := strings.Cut(strings.TrimPrefix(w, "--"), "="); assigned && strings.HasPrefix(w, "--") && m.Grammar.named(folded(name)) == nil {
			known[i] = "--" + skipped
		}
	}
	w := m.Wrapper
	w.Grammar.Options = append(slices.Clone(w.Grammar.Options), Option{Name: skipped, Bare: true})
	if wrapped, ok := w.unwrap(known); ok && !m.Batch && !strings.Contains(words[wrapped.At], " ") {
		put(wrapped.At)
		return
	}
	if !m.Batch {
		return
	}
	read, err := w.Grammar.Read(known[1:])
	if err != nil {
		return
	}
	if g, given := read.Last(m.Wrap); given && m.Wrap != "" {
		own := strings.Join(own, " ") + " "
		next := slices.Clone(words)
		if at := 1 + g.At; g.Attached {
			next[at] = strings.Replace(next[at], "=", "="+own, 1)
		} else {
			next[at+1] = own + next[at+1]
		}
		m.Line = Paste(slices.Concat(before, next)...)
	} else if len(read.Rest) > 0 {
		m.Script = read.Rest[0]
	}
}

// skipped replaces an option that has no meaning here.
const skipped = "gpurun-skipped"

// Quote joins words to a line that a POSIX shell, and job.command, parse back into the same words. For a terminal there
// is Paste.
func Quote(words []string) string {
	quoted := make([]string, len(words))
	for i, w := range words {
		quoted[i] = QuoteWord(w)
	}
	return strings.Join(quoted, " ")
}

// QuoteWord quotes one word, if necessary.
func QuoteWord(w string) string {
	if plainWord().MatchString(w) {
		return w
	}
	return "'" + strings.ReplaceAll(w, "'", `'\''`) + "'"
}

// plainWord matches a word without characters that are special to a shell.
var plainWord = lazy.Regexp(`^[\w./:,+@%-][\w./:,+@%=-]*$`)

const (
	onNodes     = "starts the command on the nodes of a job"
	inContainer = "starts the command in a container"
	needsImage  = "gpurun has to be in the image"
	oneANode    = "gpurun starts the ranks of a node itself: start it once for each node"
)

// Mpirun is how Open MPI's mpirun starts one gpurun a node.
const Mpirun = "mpirun --map-by ppr:1:node gpurun torchrun …"

// foreign are the known programs that start commands elsewhere.
var foreign = []Foreign{
	{Wrapper: Wrapper{Command: []string{"srun"}, Grammar: slurm}, Where: onNodes, Needs: oneANode},
	{Wrapper: Wrapper{Command: []string{"salloc"}, Grammar: slurm}, Where: "waits for nodes first"},
	{Wrapper: Wrapper{Command: []string{"sbatch"}, Grammar: slurm}, Where: "starts a script later", Batch: true, Wrap: "wrap"},
	{Wrapper: Wrapper{Command: []string{"qsub"}}, Where: "starts a script later", Batch: true},
	{Wrapper: Wrapper{Command: []string{"bsub"}, Grammar: getopt("", "q n R W o e oo eo J P M m gpu G w app cwd x K I Is")}, Where: "starts a script later", Batch: true},
	{Wrapper: Wrapper{Command: []string{"mpirun"}, Grammar: mpi}, Aliases: []string{"mpiexec", "orterun", "prterun", "mpiexec.hydra"}, Where: onNodes, Needs: oneANode, Once: "ppr:1:node"},
	{Wrapper: Wrapper{Command: []string{"ssh"}, Operands: 1, Grammar: getopt("4 6 A a C f G g K k M N n q s T t V v X x Y y", "B b c D E e F I i J L l m O o P p Q R S W w")},
		Where: "starts the command on another machine", Needs: "gpurun has to be installed there"},
	{Wrapper: Wrapper{Command: []string{"docker", "compose", "run"}, Subcommands: []string{"exec"}, Operands: 1, Grammar: docker}, Where: inContainer, Needs: needsImage},
	{Wrapper: Wrapper{Command: []string{"docker", "run"}, Subcommands: []string{"exec"}, Operands: 1, Grammar: docker}, Aliases: []string{"podman", "nerdctl"}, Where: inContainer, Needs: needsImage},
	{Wrapper: Wrapper{Command: []string{"kubectl", "exec"}, Subcommands: []string{"run"}}, Aliases: []string{"oc"}, Dashes: true, Where: inContainer, Needs: needsImage},
}

// slurm has the options of srun (23.11), and with them nearly all of salloc and sbatch.
var slurm = OptionGrammar{Options: append(getopt(
	"E preserve-env H hold h help k l label O overcommit b s oversubscribe Q quiet u unbuffered V version v verbose X disable-status Z no-allocate "+
		"contiguous exact interactive multi-prog overlap quit-on-interrupt reboot send-libs spread-job use-min-nodes ignore-pbs parsable requeue no-requeue "+
		"test-only wait-all-nodes no-shell no-bell usage whole",
	"A account B extra-node-info C constraint c cpus-per-task D chdir d dependency e error F nodefile G gpus i input J job-name L licenses M clusters "+
		"m distribution N nodes n ntasks o output p partition P q qos r relative S core-spec T threads t time U W wait w nodelist x exclude a array "+
		"acctg-freq bb bbf bcast begin cluster-constraint comment compress container container-id cores-per-socket cpu-bind cpu-freq deadline delay-boot epilog "+
		"export export-file exclude-constraint extra gid gpu-bind gpu-freq gpus-per-node gpus-per-socket gpus-per-task gres gres-flags hint jobid mail-type mail-user mcs-label "+
		"mem mem-bind mem-per-cpu mem-per-gpu mincpus mpi msg-timeout network nice ntasks-per-core ntasks-per-gpu ntasks-per-node ntasks-per-socket open-mode "+
		"power prefer priority profile prolog propagate reservation resv-ports signal slurmd-debug sockets-per-node switches task-epilog task-prolog "+
		"thread-spec threads-per-core time-min tmp treewidth tres-bind tres-per-task uid wckey wrap het-group pack-group container-image container-mounts container-workdir container-name").Options,
	Option{Short: 'I', Bare: true, Optional: true}, Option{Name: "immediate", Bare: true, Optional: true},
	Option{Short: 'K', Bare: true, Optional: true}, Option{Name: "kill-on-bad-exit", Bare: true, Optional: true},
	Option{Name: "exclusive", Bare: true, Optional: true}, Option{Name: "pty", Bare: true, Optional: true}, Option{Name: "no-kill", Bare: true, Optional: true},
	Option{Name: "get-user-env", Bare: true, Optional: true}, Option{Name: "container-mount-home", Bare: true},
)}

// mpi has options of Open MPI's and MPICH's mpirun.
var mpi = OptionGrammar{OneDash: true, Options: slices.Concat(
	valued("n", "np", "c", "N", "npernode", "npersocket", "map-by", "rank-by", "bind-to", "host", "H", "hosts", "hostfile", "machinefile", "f", "x", "wdir", "wd", "ppn", "perhost",
		"report-uri", "stdin", "timeout", "output", "output-filename", "iface", "launcher", "envlist", "genvlist", "path", "prefix", "rf", "rankfile", "mca-base-env-list", "tune", "am"),
	bare("oversubscribe", "nooversubscribe", "allow-run-as-root", "tag-output", "timestamp-output", "display-map", "display-allocation", "report-bindings", "v", "verbose", "q", "quiet",
		"bind-to-core", "bind-to-none", "bycore", "bynode", "byslot", "pernode", "nolocal", "l", "genvall", "xterm", "merge-stderr-to-stdout", "do-not-launch"),
	optionsOf([]string{"mca", "gmca", "prtemca", "pmca", "genv", "env"}, Option{More: 1}),
)}

// docker has options of docker, podman and nerdctl, of run and exec.
var docker = OptionGrammar{Options: append(getopt(
	"d detach i interactive t tty P publish-all init privileged read-only rm no-healthcheck oom-kill-disable q quiet help use-aliases service-ports build no-deps remove-orphans T no-TTY replace no-hosts",
	"a attach c cpu-shares e env h hostname l label m memory p publish u user v volume w workdir f file add-host annotation blkio-weight cap-add cap-drop cgroup-parent "+
		"cgroupns cidfile cpu-period cpu-quota cpus cpuset-cpus cpuset-mems detach-keys device device-cgroup-rule device-read-bps device-write-bps dns dns-option dns-search "+
		"domainname entrypoint env-file expose gpus group-add health-cmd health-interval health-retries health-timeout ip ip6 ipc isolation label-file link log-driver log-opt "+
		"mac-address memory-reservation memory-swap memory-swappiness mount name network net network-alias oom-score-adj pid pids-limit platform pull restart runtime "+
		"security-opt shm-size stop-signal stop-timeout storage-opt sysctl tmpfs ulimit userns uts volume-driver volumes-from profile project-name project-directory index "+
		"context host log-level H hooks-dir secret pod arch os group-entry hostuser tz timeout umask").Options,
	Option{Name: "sig-proxy", Bare: true, Optional: true}, Option{Name: "disable-content-trust", Bare: true, Optional: true}, Option{Name: "systemd", Bare: true, Optional: true},
)}
