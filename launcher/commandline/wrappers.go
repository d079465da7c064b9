package commandline

// wrappers are those that are known, with the options that say where the command
// begins.
var wrappers = []Wrapper{
	{Command: []string{"exec"}, TakenOff: true, Grammar: getopt("c l", "a")},
	{Command: []string{"env"}, Assignments: true, TakenOff: true, Opaque: map[string]string{"ignore-environment": cleans, "i": cleans, "chdir": moves, "C": moves},
		Grammar: getopt("i ignore-environment 0 null v debug", "u unset C chdir a argv0")},
	{Command: []string{"nohup"}},
	{Command: []string{"setsid"}, Opaque: map[string]string{"": "leaves the command behind"}, Grammar: getopt("c ctty f fork w wait", "")},
	{Command: []string{"time"}, Grammar: getopt("p portability a append v verbose q quiet", "f format o output")},
	{Command: []string{"timeout"}, Operands: 1, Grammar: getopt("f foreground p preserve-status v verbose", "k kill-after s signal")},
	{Command: []string{"nice"}, Grammar: getopt("", "n adjustment")},
	{Command: []string{"ionice"}, Grammar: getopt("t ignore", "c class n classdata")},
	{Command: []string{"stdbuf"}, Grammar: getopt("", "i input o output e error")},
	{Command: []string{"taskset"}, Operands: 1, Grammar: getopt("a all-tasks c cpu-list", "")},
	{Command: []string{"numactl"}, Grammar: getopt("l localalloc s show H hardware b balancing", //
		"i interleave w weighted-interleave p preferred P preferred-many m membind N cpunodebind C physcpubind")},
	{Command: []string{"sudo"}, Assignments: true, Opaque: map[string]string{"": cleans},
		Grammar: getopt("A askpass b background E B bell H set-home i login k K n non-interactive P S stdin s shell", //
			"u user g group D chdir R chroot p prompt C close-from h host r role t type T command-timeout U other-user")},
	{Command: []string{"uv", "run"}, Environment: true, Installs: true, Runs: true, Opaque: map[string]string{"directory": moves}, Grammar: uvRun},
	{Command: []string{"poetry", "run"}, Environment: true, Opaque: map[string]string{"directory": moves, "C": moves},
		Grammar: getopt("n no-interaction no-plugins no-cache q quiet v verbose ansi no-ansi", "C directory P project")},
	{Command: []string{"pdm", "run"}, Environment: true, Runs: true, Opaque: map[string]string{"project": moves, "p": moves},
		Grammar: getopt("s site-packages q quiet v verbose", "p project e env-file venv c config")},
	{Command: []string{"pipenv", "run"}, Environment: true, Grammar: getopt("q quiet v verbose site-packages", "python pypi-mirror")},
	{Command: []string{"hatch", "run"}, Environment: true, Installs: true, Opaque: map[string]string{"project": moves, "p": moves},
		Grammar: getopt("v verbose q quiet no-color interactive no-interactive", "e env p project data-dir cache-dir config")},
	{Command: []string{"pixi", "run"}, Environment: true, Installs: true, Opaque: map[string]string{"clean-env": cleans},
		Grammar: getopt("frozen locked no-install as-is no-lockfile-update q quiet v verbose clean-env skip-deps x executable no-progress force-activate no-completions n dry-run",
			"e environment manifest-path m color templated concurrent-downloads tls-no-verify")},
	condaRun("conda", condaHolds), condaRun("mamba", ""), condaRun("micromamba", ""),
	containerised("apptainer"), containerised("singularity"),
}

// What options do that keep gpurun from looking behind a wrapper.
const (
	moves  = "starts it in another directory"
	cleans = "takes variables of its environment away"
)

// uvRun has the options of uv run (uv 0.9) that are in use.
var uvRun = getopt("isolated active no-active no-sync locked frozen all-extras all-groups no-default-groups no-dev no-project no-env-file no-config "+
	"offline exact inexact managed-python no-managed-python no-python-downloads q quiet v verbose n no-cache U upgrade reinstall only-dev dev all-packages native-tls "+
	"m module s script gui-script no-editable no-sources no-index no-build no-binary no-build-isolation no-progress refresh compile-bytecode",
	"extra no-extra group no-group only-group env-file with with-editable with-requirements p python package project directory "+
		"index default-index i index-url extra-index-url f find-links cache-dir config-file color P upgrade-package python-platform w "+
		"torch-backend resolution prerelease fork-strategy exclude-newer link-mode index-strategy keyring-provider allow-insecure-host "+
		"reinstall-package refresh-package no-build-package no-binary-package no-build-isolation-package python-preference C config-setting")

const condaHolds = "it holds the command's output back until the end"

// condaRun is conda, and what is like it.
func condaRun(name, holds string) Wrapper {
	return Wrapper{
		Command: []string{name, "run"}, Environment: true, Holds: holds, Streams: []string{"no-capture-output", "live-stream", "s"},
		Opaque:  map[string]string{"cwd": moves, "clean-env": cleans, "detach": "leaves the command behind", "d": "leaves the command behind"},
		Grammar: getopt("v verbose dev debug-wrapper-scripts no-capture-output live-stream s clean-env detach d", "n name p prefix cwd a attach r root-prefix e env"),
	}
}

// containerised is Apptainer, or Singularity.
func containerised(name string) Wrapper {
	return Wrapper{
		Command: []string{name, "exec"}, Subcommands: []string{"run"}, Operands: 1, Environment: true, Contained: true,
		Opaque: map[string]string{"pwd": moves, "cwd": moves, "W": moves, "workdir": moves, "e": cleans, "cleanenv": cleans, "c": cleans, "contain": cleans, "C": cleans, "containall": cleans},
		Grammar: getopt("nv nvccli rocm c contain C containall e cleanenv i ipc p pid f fakeroot writable writable-tmpfs w compat no-eval u userns d debug q quiet s silent v verbose",
			"B bind env env-file H home pwd cwd W workdir o overlay app n net network security scratch S mount cpus memory"),
	}
}
