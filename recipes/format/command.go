package format

import "github.com/gpurun/gpurun/strategy"

// A Command is the start of a job as the user wrote it. It is never changed in place.
type Command struct {
	// Argv is the script (or module, or program) and its arguments, without the
	// interpreter and its -m.
	Argv []string
	// Env is the whole environment that the job sees.
	Env map[string]string
	// Files are the configuration files that the command or the knobs name, by path as written;
	// FilesNamed lists them.
	Files map[string][]byte
	// Script is the script's source, for detection; nil if there is none.
	Script []byte
	// Modules are the local modules that the script imports, directly or through others; nil if
	// they are not known.
	Modules []Source
	// Code is the result of the reader of scripts for the script and its modules.
	Code ScriptCode
	// Parser has the arguments that the code of the job, and of its framework, defines; nil if it
	// is not known.
	Parser *Parser
	// Calls are arguments for which the process uses other values than its source.
	Calls []strategy.Call
	// Closed: nothing may be changed inside the job's process.
	Closed bool
	// Devices is the number of devices that a job of one process sees, over which its framework
	// may spread each batch; 0 for a job of ranks, each of which has one.
	Devices int
	// Packages are the versions of the Python packages that the job's interpreter has, by their
	// names in lower case; nil if they are not known.
	Packages map[string]string
}

// Sources are the texts of the script and of its modules; nil if it has none.
func (c Command) Sources() [][]byte {
	if c.Script == nil {
		return nil
	}
	texts := [][]byte{c.Script}
	for _, m := range c.Modules {
		texts = append(texts, m.Text)
	}
	return texts
}

// A Source is a Python file.
type Source struct {
	Path string
	Text []byte
}

// A Topology describes the processes that share the work.
type Topology struct {
	Ranks int
	// Plain: the job is one process that may start ranks itself, so their number is not known.
	Plain bool
	// DataParallel is the number of ranks that see different samples; 0: Ranks.
	DataParallel int
	// NVMePath is the folder for offload to NVMe; empty: none.
	NVMePath string
}

// Sharing is the number of ranks that see different samples, at least 1.
func (t Topology) Sharing() int {
	if t.DataParallel > 0 {
		return t.DataParallel
	}
	return max(t.Ranks, 1)
}
