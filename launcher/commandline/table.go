package commandline

import (
	"path"
	"slices"
	"strings"

	"github.com/gpurun/gpurun/launcher/lazy"
)

// A ProgramTable has the launchers and wrappers that gpurun knows.
type ProgramTable struct {
	Launchers []RankLauncher
	Wrappers  []Wrapper
}

// Known is the table of everything that gpurun knows. To support another launcher or wrapper, add its value
// here.
var Known = ProgramTable{
	Launchers: slices.Concat(
		[]RankLauncher{torchrun, torchDistributedLaunch, accelerate, deepspeed, composer, tune, axolotl, llamaFactory,
			swift("sft"), swift("pt")},
		trl, opaque,
	),
	Wrappers: wrappers,
}

// opaque launchers start ranks in ways that gpurun cannot replace, so that it refuses to start them on each
// rank. A launcher of a single word starts ranks with any subcommand that has no separate entry.
var opaque = []RankLauncher{
	{Command: []string{"mpirun"}, Aliases: [][]string{{"mpiexec"}, {"mpiexec.hydra"}, {"orterun"}, {"prterun"}}},
	{Command: []string{"srun"}}, {Command: []string{"jsrun"}}, {Command: []string{"aprun"}},
	{Command: []string{"horovodrun"}, Modules: []string{"horovod.runner.launch"}},
	{Command: []string{"fabric", "run"}}, {Command: []string{"lightning", "run"}}, {Command: []string{"torchx", "run"}},
	{Command: []string{"flux", "run"}}, {Command: []string{"colossalai", "run"}}, {Command: []string{"xtuner", "train"}},
	{Command: []string{"axolotl"}}, {Command: []string{"llamafactory-cli"}, Aliases: [][]string{{"lmf"}}},
	{Command: []string{"trl"}}, {Command: []string{"swift"}},
}

// Starts reports whether a word names a program that starts other commands: an interpreter, a launcher, a
// wrapper, or a Foreign.
func (t *ProgramTable) Starts(word string) bool {
	name := path.Base(word)
	if IsPython(name) || t.wrapper(name) != nil || foreignOf(name) != nil {
		return true
	}
	return slices.ContainsFunc(t.Launchers, func(l RankLauncher) bool {
		return slices.ContainsFunc(append([][]string{l.Command}, l.Aliases...),
			func(c []string) bool { return len(c) > 0 && c[0] == name })
	})
}

// A Found is a launcher found on a command line.
type Found struct {
	*RankLauncher
	// Name is the launcher as written, such as "accelerate-launch".
	Name string
	// Python is the interpreter that runs it as a module, empty for a program.
	Python string
	// Args are the words after its command.
	Args []string
	// Skipped: there are unread options between the words of its command.
	Skipped bool
}

// Torchrun reports whether it is PyTorch's own launcher, and whether under its older name (legacy).
func (f Found) Torchrun() (is, legacy bool) {
	if f.RankLauncher == nil {
		return false, false
	}
	name := f.RankLauncher.Name()
	legacy = name == torchDistributedLaunch.Name()
	return legacy || name == torchrun.Name(), legacy
}

// Find finds the launcher at the beginning of a command line, as a program or as a module of an interpreter.
// The interpreter may have no option but -u before the module, because gpurun starts its own interpreter with
// -u.
func (t *ProgramTable) Find(words []string) (Found, bool) {
	if len(words) == 0 {
		return Found{}, false
	}
	if !IsPython(words[0]) {
		return t.program(words)
	}
	p, err := ReadPython(words)
	if err != nil || p.Kind != Module || !p.Plain {
		return Found{}, false
	}
	f, ok := t.module(p.Argv[0], p.Argv[1:])
	f.Python = words[0]
	return f, ok
}

// program finds the launcher with the longest command that the words begin with.
func (t *ProgramTable) program(words []string) (best Found, found bool) {
	length := 0
	for i := range t.Launchers {
		l := &t.Launchers[i]
		for _, begins := range append([][]string{l.Command}, l.Aliases...) {
			args, skipped, ok := after(words, begins)
			if ok && len(begins) > length {
				length, found = len(begins), true
				best = Found{RankLauncher: l, Name: strings.Join(begins, " "), Args: args, Skipped: skipped}
			}
		}
	}
	return best, found
}

// after returns the words after a command of one or two words. Options may be between the two.
func after(words, begins []string) (args []string, skipped, ok bool) {
	if len(begins) == 0 || path.Base(words[0]) != begins[0] {
		return nil, false, false
	}
	args = words[1:]
	for _, sub := range begins[1:] {
		for len(args) > 0 && strings.HasPrefix(args[0], "-") {
			args, skipped = args[1:], true
		}
		if len(args) == 0 || args[0] != sub {
			return nil, false, false
		}
		args = args[1:]
	}
	return args, skipped, true
}

// module finds a launcher by its module name.
func (t *ProgramTable) module(name string, args []string) (Found, bool) {
	for i := range t.Launchers {
		l := &t.Launchers[i]
		if slices.Contains(l.Modules, name) {
			return Found{RankLauncher: l, Name: l.Name(), Args: args}, true
		}
		if slices.Contains(l.Programs, name) {
			if f, found := t.program(append([]string{l.Command[0]}, args...)); found && f.RankLauncher == l {
				return f, true
			}
		}
	}
	return Found{}, false
}

// StartsRanks returns the name of the launcher that a command is, or that it starts through wrappers, an
// interpreter or a shell; empty for none. In doubt it finds one, because a launcher would start ranks on each
// rank.
func (t *ProgramTable) StartsRanks(kind CommandKind, argv []string) string {
	switch {
	case len(argv) == 0:
		return ""
	case kind == Program:
		return t.search(argv)
	case kind == Module:
		f, _ := t.module(argv[0], argv[1:])
		return f.Name
	}
	return t.startsRanks(argv)
}

// startsRanks returns the name of the launcher at the beginning of a command. If the launcher starts ranks
// with any subcommand, this is only the program's name.
func (t *ProgramTable) startsRanks(words []string) string {
	if f, found := t.program(words[:1]); found {
		return f.Name
	}
	f, _ := t.program(words)
	return f.Name
}

// search finds a launcher after wrappers, without knowing their options.
func (t *ProgramTable) search(words []string) string {
	var within *Wrapper
	for i, w := range words {
		if i > 0 && within.valued(words[i-1]) {
			continue
		}
		if name := t.startsRanks(words[i:]); name != "" {
			return name
		}
		base := path.Base(w)
		wrapper := t.wrapper(base)
		switch {
		case IsPython(w):
			return t.interpreted(words[i:])
		case slices.Contains(Shells, base):
			return "" // InShell checks its commands
		case i == 0 && wrapper == nil, strings.HasSuffix(base, ".py"), strings.HasSuffix(base, ".sh"):
			return ""
		case wrapper != nil:
			within = wrapper
		}
	}
	return ""
}

// interpreted finds a launcher that an interpreter starts: a module, or a script
// that is a launcher's program.
func (t *ProgramTable) interpreted(words []string) string {
	p, err := ReadPython(words)
	if err != nil || len(p.Argv) == 0 || p.Kind == Program {
		return ""
	}
	return t.StartsRanks(p.Kind, p.Argv)
}

// Shells run scripts.
var Shells = []string{"sh", "bash", "dash", "zsh", "ksh", "csh", "tcsh", "fish"}

// shellLine returns the command in a shell's option -c: the first word after its options.
func shellLine(words []string) string {
	runs := false
	for i := 1; i < len(words); i++ {
		w := words[i]
		switch {
		case w == "--rcfile" || w == "--init-file":
			i++
		case strings.HasPrefix(w, "--") && w != "--":
		case w != "" && strings.Contains("-+", w[:1]):
			runs = runs || w[0] == '-' && strings.Contains(w, "c")
			if strings.ContainsAny(w, "oO") {
				i++ // the name of an option
			}
		case runs:
			return w
		default:
			return ""
		}
	}
	return ""
}

// joins matches separators of a shell's commands.
var joins = lazy.Regexp(`[;&|\n]+`)

// InShell returns the launcher that begins one of the commands in a shell's -c, possibly after wrappers;
// empty for none. It splits words at blanks only, since a full parse is the shell's task.
func (t *ProgramTable) InShell(argv []string) string {
	at := slices.IndexFunc(argv, func(w string) bool { return slices.Contains(Shells, path.Base(w)) })
	if at < 0 || at > 0 && t.wrapper(path.Base(argv[0])) == nil {
		return ""
	}
	for _, command := range joins().Split(shellLine(argv[at:]), -1) {
		words := strings.Fields(command)
		for len(words) > 0 && assignment().MatchString(words[0]) {
			words = words[1:]
		}
		if name := t.StartsRanks(Program, words); name != "" {
			return name
		}
	}
	return ""
}

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
	{Names: []string{"mpirun", "mpiexec", "orterun", "prterun", "mpiexec.hydra"}, Where: onNodes, Needs: oneANode,
		Once: "ppr:1:node"},
	{Names: []string{"ssh"}, Where: "starts the command on another machine", Needs: "gpurun has to be installed there"},
	{Names: []string{"docker", "podman", "nerdctl"}, Subcommands: []string{"run", "exec"}, Where: inContainer,
		Needs: needsImage},
	{Names: []string{"kubectl", "oc"}, Subcommands: []string{"exec", "run"}, Where: inContainer, Needs: needsImage},
}
