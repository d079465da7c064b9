package recipes

// A Wrapper is a framework's own launcher, which starts the ranks. gpurun starts
// what it would start on each of them.
type Wrapper struct {
	// Command is how it begins: ["trl", "sft"].
	Command []string
	// What it runs: a module; a file in the interpreter's site-packages, where {1}
	// is the first word that is no option, taken off; or the user's script, which
	// is that word.
	Module, Site string
	Script       bool
	// Modules are options by which that word is a module: "-m".
	Modules []string
	// Ranks are options, and variables ("$NPROC"), that say how many ranks there are
	// on a node; One says that there is one where none of them does.
	Ranks []string
	One   bool
	// Takes are further options of the wrapper, with a value; Flags without.
	Takes, Flags []string
	// Refuse are options that gpurun cannot honour, and variables; those with a value
	// (in Takes, too) may be 1.
	Refuse []string
	// Env are variables that the wrapper sets.
	Env map[string]string
	// Files maps an argument to the file in site-packages, "{}" for its value,
	// that is meant where the value is no file.
	Files map[string]string
	// Expand: the first word can be a file whose keys are arguments.
	Expand bool
	// Accelerate are options that the wrapper hands on to accelerate launch, which
	// starts the module; nil: that does not start it. What follows "--" is handed
	// on, too, to torchrun where --launcher says so. HandedIn is the argument that
	// names a file whose keys can be some of the options.
	Accelerate []string
	HandedIn   string
	// Configs maps an option to the file in site-packages, "{}" for its value, that
	// is the launcher's configuration where the value is no file.
	Configs map[string]string
}
