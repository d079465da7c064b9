package job

import (
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// launchers are programs that start ranks themselves. Where a word follows, it
// is the subcommand that does.
var launchers = map[string]string{
	"torchrun": "", "deepspeed": "", "mpirun": "", "mpiexec": "", "mpiexec.hydra": "", "orterun": "", "prterun": "",
	"srun": "", "jsrun": "", "aprun": "", "horovodrun": "", "composer": "", "axolotl": "", "llamafactory-cli": "",
	"accelerate": "launch", "tune": "run", "fabric": "run", "lightning": "run", "torchx": "run", "flux": "run",
	"colossalai": "run", "trl": "", "xtuner": "train", "swift": "",
}

// launcherModules are launchers as "python -m" starts them.
var launcherModules = map[string]string{
	"torch.distributed.run":              "torchrun",
	"torch.distributed.launch":           "torch.distributed.launch",
	"accelerate.commands.launch":         "accelerate launch",
	"accelerate.commands.accelerate_cli": "accelerate",
	"deepspeed":                          "deepspeed",
	"deepspeed.launcher.runner":          "deepspeed",
	"composer.cli.launcher":              "composer",
	"horovod.runner.launch":              "horovodrun",
}

// wrappers run the command that their arguments end with, some after a
// subcommand of their own.
var wrappers = []string{
	"apptainer", "conda", "env", "exec", "hatch", "ionice", "mamba", "micromamba", "nice", "nohup", "numactl", "pdm",
	"pipenv", "pixi", "poetry", "setsid", "singularity", "stdbuf", "sudo", "taskset", "time", "timeout", "uv",
}

// named are wrappers' options whose value may look like a launcher.
var named = []string{"-n", "--name", "-p", "--prefix", "--with", "--extra", "--group", "-e", "--environment", "-u"}

// assignment is NAME= at the start of a word.
var assignment = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*=`)

// python matches the base name of an interpreter.
var python = regexp.MustCompile(`^(python|pypy)[0-9.]*$`)

func isPython(word string) bool { return python.MatchString(filepath.Base(word)) }

// launcherIn finds the launcher that a command starts, directly or through a
// wrapper; empty where there is none.
func launcherIn(words []string) string {
	for i, w := range words {
		if name := launcherAt(words[i:]); name != "" && (i == 0 || !slices.Contains(named, words[i-1])) {
			return name
		}
		base := filepath.Base(w)
		switch {
		case isPython(w):
			return moduleLauncher(words[i+1:])
		case (base == "sh" || base == "bash") && i+2 < len(words) && strings.HasPrefix(words[i+1], "-") && strings.HasSuffix(words[i+1], "c"):
			return launcherInShell(words[i+2])
		case i == 0 && !slices.Contains(wrappers, base), strings.HasSuffix(base, ".py"), strings.HasSuffix(base, ".sh"):
			return ""
		}
	}
	return ""
}

// launcherInShell finds a launcher at the start of one of a shell's commands.
func launcherInShell(line string) string {
	for _, command := range regexp.MustCompile(`[;&|\n]+`).Split(line, -1) {
		words := strings.Fields(command)
		for len(words) > 0 && assignment.MatchString(words[0]) {
			words = words[1:]
		}
		if name := launcherIn(words); name != "" {
			return name
		}
	}
	return ""
}

// launcherAt tells whether the first word is a launcher, and its subcommand is there.
func launcherAt(words []string) string {
	base := filepath.Base(words[0])
	sub, known := launchers[base]
	switch {
	case !known:
		return ""
	case sub == "":
		return base
	}
	for _, w := range words[1:] {
		if !strings.HasPrefix(w, "-") {
			if w == sub {
				return base + " " + sub
			}
			return ""
		}
	}
	return ""
}

// moduleLauncher finds a launcher among an interpreter's arguments, up to the script.
func moduleLauncher(args []string) string {
	for i := 0; i < len(args); i++ {
		switch a := args[i]; {
		case a == "-m" && i+1 < len(args):
			return launcherModules[args[i+1]]
		case strings.HasPrefix(a, "-m"):
			return launcherModules[a[2:]]
		case a == "-X", a == "-W":
			i++
		case !strings.HasPrefix(a, "-"):
			return launcherAt(args[i:])
		}
	}
	return ""
}

// oncePerRank refuses a launcher that gpurun would start once a rank.
func oncePerRank(name string) *UsageError {
	return usage(`set launch.ranks = "self", or give the command that it runs on each rank`,
		"%s starts ranks of its own: it would start once a rank", name)
}
