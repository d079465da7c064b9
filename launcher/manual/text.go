package manual

// appHelp follows the list of verbs: enough to start a job with.
const appHelp = `
EXAMPLES:
   gpurun torchrun --nproc-per-node 8 train.py          one word in front of the line that you type today
   gpurun --nproc-per-node 8 train.py --batch-size 64   in place of torchrun; a known framework needs no more
   gpurun plan train.toml                               what gpurun could change, and what not, and why; starts nothing
   gpurun diagnose slurm-1234.out                       why a job died that ran without gpurun

   gpurun init train.py                                 a train.toml with the settings that a script's source shows

   What is not in the source goes into train.toml:

     [job]
     script = "train.py"
     args   = ["--batch-size", "64"]
     [knobs]
     micro_batch_size            = { arg = "--batch-size" }
     gradient_accumulation_steps = { arg = "--accum", default = 1 }

   "gpurun help run" lists the flags of a run.

EXIT STATUS:
` + runStatus + `
`

// runStatus are the exit codes of a run.
const runStatus = `   0    trained
   1    the job itself failed
   2    usage, configuration or environment: nothing was started
   12   memory: every allowed remedy was tried or is impossible, or a bound was reached
   70   a bug in gpurun
   74   the run directory cannot be written, or a disk of the job is full
   75   try again later
   129  stopped by SIGHUP; 130 by SIGINT, 143 by SIGTERM`

// status are the exit codes of the verbs that start nothing.
func status(done string) string {
	return "   0    " + done + `
   2    usage, configuration or environment
   70   a bug in gpurun`
}

// doctorStatus are the exit codes of the verb that looks at a machine.
const doctorStatus = `   0    nothing keeps jobs from training; there may be warnings
   1    there is a problem: a line with ✗
   2    usage or configuration
   70   a bug in gpurun
   129  stopped by SIGHUP; 130 by SIGINT, 143 by SIGTERM`

// ExitStatus are the exit codes of a verb, a line each.
func ExitStatus(verb string) string { return exitStatus[verb] }

// verdictStatus are the exit codes of the verb that repeats those of runs.
const verdictStatus = `   0    the run trained; one that did not: its own code, as in "gpurun help run"
   2    there is no such run, or it cannot be read
   70   a bug in gpurun
   75   it ended with 75, still runs, or its gpurun is gone without a verdict`

// exitStatus are the exit codes of each verb.
var exitStatus = map[string]string{
	"run":        runStatus,
	"plan":       status("the plan is shown"),
	"init":       status("the train.toml is written, or shown"),
	"estimate":   status("the estimate is shown, whatever fits"),
	"doctor":     doctorStatus,
	"diagnose":   status("everything was read, whatever the diagnosis"),
	"explain":    status("the journal was read"),
	"recipes":    status("the recipes are shown"),
	"detect":     status("the recipe is shown, or that there is none"),
	"runs":       status("the runs are listed"),
	"status":     status("the run's state is shown, whatever its outcome"),
	"report":     status("the report is written"),
	"resume":     runStatus,
	"verdict":    verdictStatus,
	"logs":       status("the logs are shown"),
	"clean":      status("what could be removed is removed, or nothing had to be"),
	"secret":     status("the secret is printed"),
	"completion": status("the script, or what fits, is printed"),
	"version":    status("the version is shown"),
	"help":       status("the help is shown"),
}
