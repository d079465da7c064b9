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
	Names []string
	// Subcommands are those that start a command; nil: the program itself does.
	Subcommands []string
	// Where describes where the command runs, such as "on other nodes".
	Where string
	// Batch: its argument is a script, which is started later, or --wrap has a command.
	Batch bool
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
	f := foreignOf(name)
	if f == nil {
		return MisplacedCommand{}, false
	}
	at := 0
	if f.Subcommands != nil {
		at = slices.IndexFunc(words, func(w string) bool { return slices.Contains(f.Subcommands, w) })
		if at < 0 {
			return MisplacedCommand{}, false
		}
		name += " " + words[at]
	}
	m := MisplacedCommand{Foreign: f, Name: name}
	switch {
	case m.Once != "" && !slices.Contains(words, m.Once):
		m.Line = Mpirun
	case m.Batch:
		m.wrap(before, words, own)
	default:
		if n := t.begins(words[at+1:]); n >= 0 {
			m.Line = Paste(slices.Concat(before, words[:at+1+n], own, words[at+1+n:])...)
		}
	}
	return m, true
}

// foreignOf finds a program by its name; nil if it is none of these.
func foreignOf(name string) *Foreign {
	for i := range foreign {
		if slices.Contains(foreign[i].Names, name) {
			return &foreign[i]
		}
	}
	return nil
}

// begins is where the command begins among a program's arguments: behind "--", or at the first word that is known to
// start something; -1 if there is none.
func (t *ProgramTable) begins(words []string) int {
	if at := slices.Index(words, "--"); at >= 0 && at+1 < len(words) {
		return at + 1
	}
	return slices.IndexFunc(words, func(w string) bool {
		script := slices.Contains([]string{".py", ".sh"}, path.Ext(w)) && !strings.Contains(w, " ")
		return script || slices.Contains(Shells, path.Base(w)) || t.Starts(w)
	})
}

// scripts are the endings of scripts for a scheduler.
var scripts = []string{".sh", ".bash", ".sbatch", ".slurm", ".pbs", ".job"}

// wrap puts gpurun in front of the command that --wrap has, or finds the script.
func (m *MisplacedCommand) wrap(before, words, own []string) {
	front, next := strings.Join(own, " ")+" ", slices.Clone(words)
	for i, w := range words {
		command, attached := strings.CutPrefix(w, "--wrap=")
		switch {
		case attached:
			next[i] = "--wrap=" + front + command
		case i > 0 && words[i-1] == "--wrap":
			next[i] = front + w
		case m.Script == "" && slices.Contains(scripts, path.Ext(w)):
			m.Script = w
			continue
		default:
			continue
		}
		m.Line, m.Script = Paste(slices.Concat(before, next)...), ""
		return
	}
}

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
	{Names: []string{"srun"}, Where: onNodes, Needs: oneANode},
	{Names: []string{"salloc"}, Where: "waits for nodes first"},
	{Names: []string{"sbatch", "qsub", "bsub"}, Where: "starts a script later", Batch: true},
	{Names: []string{"mpirun", "mpiexec", "orterun", "prterun", "mpiexec.hydra"}, Where: onNodes, Needs: oneANode, Once: "ppr:1:node"},
	{Names: []string{"ssh"}, Where: "starts the command on another machine", Needs: "gpurun has to be installed there"},
	{Names: []string{"docker", "podman", "nerdctl"}, Subcommands: []string{"run", "exec"}, Where: inContainer, Needs: needsImage},
	{Names: []string{"kubectl", "oc"}, Subcommands: []string{"exec", "run"}, Where: inContainer, Needs: needsImage},
}
