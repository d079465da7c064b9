package commandline

// wrappers are those that are known, with the options that say where the command
// begins.
var wrappers = []Wrapper{
	{Command: []string{"exec"}, TakenOff: true, Grammar: getopt("c l", "a")},
	{Command: []string{"env"}, Assignments: true, TakenOff: true,
		Grammar: getopt("i ignore-environment 0 null v debug", "u unset C chdir a argv0")},
	{Command: []string{"nohup"}},
	{Command: []string{"setsid"}, Grammar: getopt("c ctty f fork w wait", "")},
	{Command: []string{"time"}, Grammar: getopt("p portability a append v verbose q quiet", "f format o output")},
	{Command: []string{"timeout"}, Operands: 1, Grammar: getopt("f foreground p preserve-status v verbose", "k kill-after s signal")},
	{Command: []string{"nice"}, Grammar: getopt("", "n adjustment")},
	{Command: []string{"ionice"}, Grammar: getopt("t ignore", "c class n classdata")},
	{Command: []string{"stdbuf"}, Grammar: getopt("", "i input o output e error")},
	{Command: []string{"taskset"}, Operands: 1, Grammar: getopt("a all-tasks c cpu-list", "")},
	{Command: []string{"numactl"}, Grammar: getopt("l localalloc s show H hardware b balancing", //
		"i interleave w weighted-interleave p preferred P preferred-many m membind N cpunodebind C physcpubind")},
	{Command: []string{"sudo"}, Assignments: true, Grammar: getopt("A askpass b background E B bell H set-home i login k K n non-interactive P S stdin s shell", //
		"u user g group D chdir R chroot p prompt C close-from h host r role t type T command-timeout U other-user")},
	{Command: []string{"uv", "run"}, Grammar: getopt("isolated active no-sync locked frozen all-extras all-groups no-dev no-project no-env-file no-config "+
		"offline exact managed-python no-managed-python no-python-downloads q quiet v verbose n no-cache U upgrade reinstall only-dev dev all-packages native-tls",
		"extra no-extra group no-group only-group env-file with with-editable with-requirements p python package project directory "+
			"index default-index i index-url extra-index-url f find-links cache-dir config-file color P upgrade-package python-platform w")},
	{Command: []string{"poetry", "run"}, Grammar: getopt("n no-interaction no-plugins no-cache q quiet v verbose ansi no-ansi", "C directory P project")},
	{Command: []string{"pdm", "run"}, Grammar: getopt("s site-packages q quiet v verbose", "p project e env-file venv c config")},
	{Command: []string{"pipenv", "run"}, Grammar: getopt("q quiet v verbose site-packages", "python pypi-mirror")},
	{Command: []string{"hatch", "run"}, Grammar: getopt("v verbose q quiet no-color interactive no-interactive", "e env p project data-dir cache-dir config")},
	{Command: []string{"pixi", "run"}, Grammar: getopt("frozen locked no-install q quiet v verbose clean-env skip-deps x executable", "e environment manifest-path m color")},
	{Command: []string{"conda", "run"}, Grammar: condaRun}, {Command: []string{"mamba", "run"}, Grammar: condaRun},
	{Command: []string{"micromamba", "run"}, Grammar: condaRun},
	{Command: []string{"apptainer", "exec"}, Subcommands: []string{"run"}, Operands: 1, Grammar: container},
	{Command: []string{"singularity", "exec"}, Subcommands: []string{"run"}, Operands: 1, Grammar: container},
}

// condaRun is shared by conda and what is like it.
var condaRun = getopt("v verbose dev debug-wrapper-scripts no-capture-output live-stream clean-env detach d", "n name p prefix cwd a attach r root-prefix e env")

// container is shared by Apptainer and Singularity.
var container = getopt("nv nvccli rocm c contain C containall e cleanenv i ipc p pid f fakeroot writable writable-tmpfs w compat no-eval u userns d debug q quiet s silent v verbose",
	"B bind env env-file H home pwd cwd W workdir o overlay app n net network security scratch S mount cpus memory")
