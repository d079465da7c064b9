package strategy

// AllocatorVariables are those from which PyTorch reads its allocator's settings, "key:value,key:value". The second is
// the name since PyTorch 2.9; it counts if both are set.
var AllocatorVariables = [2]string{"PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF"}

// A Command is the command of one attempt. Package recipes returns it with paths of Files and
// Siblings relative to the folder of the copies, and the originals' as the user wrote them; from
// launcher/job on, all paths are resolved.
type Command struct {
	Argv  []string          `json:"argv"`
	Env   map[string]string `json:"env,omitempty"`   // variables that gpurun sets
	Calls []Call            `json:"calls,omitempty"` // arguments that gpurun's hook changes in the process
	Turn  Plan              `json:"turn,omitempty"`  // settings that the hook changes there
	// Files are changed copies, by their path. Argv and Env name them.
	Files map[string][]byte `json:"-"`
	// Siblings maps a folder of copies to the original folder. Links to the other files of the
	// original folder make relative includes resolve.
	Siblings map[string]string `json:"-"`
	// Whole is the folder with the copy of a checkpoint, which needs all of its siblings.
	Whole string `json:"-"`
	// Diff is a unified diff of the files, the command (one option per line) and the changed
	// variables, for people; empty if nothing changes.
	Diff string `json:"-"`
}
