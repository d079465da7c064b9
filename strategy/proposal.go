package strategy

// A Proposal is a plan in the form in which the user could have written the job.
type Proposal struct {
	Env  map[string]string // to be added to the job's variables
	File string            // name of the train.toml; empty for a command line
	// Key is the key of [job] that gets the words: "args", "program" or "command"; empty for a
	// command line, and "argv" for words that fit none of them.
	Key   string
	Words []string
	// Sources are words in their written form, before Words expanded their variables, by index.
	// An empty one belongs to the word before it. EnvSources are those of Env.
	Sources    map[int]string
	EnvSources map[string]string
	NoArgs     bool // the words include job.args, which has to be removed
	HasEnv     bool // the job has a table job.env
	// Code has calls of the job's code in their new form. Turned cannot be written anywhere in
	// the job: gpurun's hook sets it in the process.
	Code       []string
	Turned     Plan
	Model      *Model // the one that the process trains; nil: not known
	OwnModel   bool   // no library whose models have methods for Turned is in the code
	Unchanged  bool   // words and variables are those of the job
	Remembered bool   // the next start begins with the plan anyway
	Armed      bool   // the next start begins with the remedies that processes needed in place
}
