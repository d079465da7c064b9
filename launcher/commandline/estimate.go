package commandline

import (
	"regexp"
	"slices"
	"strings"
)

// An Estimate is the command line of gpurun estimate.
type Estimate struct {
	// Size is the number of parameters as typed; empty where there is a job or neither.
	Size string
	// Job is a train.toml or a command line, with the flags before it that are a run's; nil
	// without one.
	Job []string
	// Others are words that go with a job only, and there is none.
	Others []string
	JSON   bool
	// Given are its own options by name, as they were typed; the value of a bare one is "1".
	Given map[string]Given
}

// estimateOptions are those of gpurun estimate itself. They have to be written in full, so that a
// beginning that fits one of torchrun's goes on meaning that.
var estimateOptions = slices.Concat(
	optionsOf([]string{
		"parameters", "config", "layers", "heads", "kv-heads", "intermediate", "precision", "weights", "optimizer", "zero", "gpus", "accumulation",
		"checkpointing", "attention", "offload",
	}, Option{Whole: true}),
	[]Option{
		{Name: "hidden", Aliases: []string{"hidden-size"}, Whole: true},
		{Name: "vocab", Aliases: []string{"vocab-size", "vocabulary"}, Whole: true},
		{Name: "micro-batch", Aliases: []string{"micro-batch-size"}, Whole: true},
		{Name: "sequence", Aliases: []string{"sequence-length"}, Whole: true},
		{Name: "fsdp", Bare: true, Whole: true},
		{Name: "offload-optimizer", Bare: true, Optional: true, Whole: true},
		{Name: "offload-param", Bare: true, Optional: true, Whole: true},
		{Name: "offload-activations", Bare: true, Optional: true, Whole: true},
	},
)

// estimate has them among the options of a run, which a job may have.
var estimate = Grammar{Options: slices.Concat(torchrunOptions(), ownOptions, estimateOptions), Abbreviations: true, Remainder: true}

// sizeLike is a word that was meant for a number of parameters.
var sizeLike = regexp.MustCompile(`^[0-9][0-9._]*([eE][+]?[0-9]+)?[A-Za-z]{0,2}$`)

// EstimateHelp says what the options of gpurun estimate are.
const EstimateHelp = `--json              print one JSON document on stdout
--precision WHICH   what is computed in: fp32, tf32, bf16 or fp16
--weights WHICH     what the bytes follow: fp32 (autocast casts a copy), bf16 or fp16 (states too), deepspeed (16-bit
                    weights beside a master copy in fp32); by default deepspeed with --zero 1 or more, else fp32
--optimizer NAME    adamw, adamw-fused, adamw-8bit, adamw-4bit, paged-adamw-8bit, adafactor, lion, momentum, sgd
--gpus N            data-parallel ranks, on one host
--zero STAGE        DeepSpeed's stage, 0 to 3; --fsdp: PyTorch's FSDP, as FULL_SHARD
--micro-batch N     samples of one forward on one GPU; --accumulation N: forwards for each optimizer step
--sequence N        tokens of a sample
--checkpointing H   of activations: none, selective or full
--attention KIND    sdpa or flash, which do not hold the scores, or eager, which does
--offload WHAT      optimizer, param or activations, joined by commas, to host memory; as flags of their own
                    --offload-optimizer, --offload-param (both also =nvme), --offload-activations
--config FILE       the config.json of a model of Hugging Face's, or its folder
--parameters SIZE   the number of parameters, of a job too; --layers N, --hidden N, --heads N, --kv-heads N,
                    --intermediate N, --vocab N: the model's shape
--help, -h          show this
With a job, the flags are stronger than what the job says; those of "gpurun plan" count before it, too.`

// ReadEstimate reads what follows "gpurun estimate": options, then a size, a train.toml or a
// command line. Options may also follow a size and a train.toml. exists says whether a word is
// a file, and so no size. The error is a *Problem or ErrHelp.
func ReadEstimate(words []string, exists func(string) bool) (Estimate, error) {
	e := Estimate{Given: map[string]Given{}}
	var kept []string
	for {
		read, err := estimate.Read(words)
		if err != nil {
			return e, err
		}
		for _, g := range read.Given {
			switch {
			case g.Means == Help:
				return e, ErrHelp
			case g.Name == "json":
				e.JSON = true
			case ofEstimate(g.Option):
				e.Given[g.Name] = g
			}
		}
		kept = append(kept, flags(words[:read.From], read.Given, ofEstimate)...)
		switch {
		case e.Job != nil: // what is wrong behind it is told by whoever reads the job
			e.Job = slices.Concat(e.Job, kept, read.Rest)
			return e, nil
		case len(read.Rest) == 0 || e.Size != "":
			e.Others = slices.DeleteFunc(append(kept, read.Rest...), func(w string) bool { return w == "--json" })
			return e, nil
		case sizeLike.MatchString(read.Rest[0]) && !exists(read.Rest[0]):
			e.Size = read.Rest[0]
		case strings.HasSuffix(read.Rest[0], ".toml"):
			e.Job, kept = append(kept, read.Rest[0]), nil
		default:
			e.Job = append(kept, read.Rest...)
			return e, nil
		}
		words = read.Rest[1:]
	}
}

// ofEstimate reports whether an option is gpurun estimate's own.
func ofEstimate(o *Option) bool {
	return slices.ContainsFunc(estimateOptions, func(own Option) bool { return own.Name == o.Name && own.Name != "" })
}

// OptionsHelp says what the options of a verb are that reads its command line itself.
func OptionsHelp(verb string) string {
	switch verb {
	case "run":
		return RunHelp
	case "estimate":
		return EstimateHelp
	}
	return ReadHelp
}

// RunHelp says what the flags of a run are.
const RunHelp = `gpurun's own:
  --json                  print events as JSON lines on stdout, the verdict last; all else goes to stderr
  --quiet                 say only failures and the end
  --run-dir DIR           the run directory; one that exists goes on where it stopped
  --run-id ID             its name in .gpurun/JOB: letters, digits, ".", "_", "-"; the same ID goes on with the same run
  --if-trained WHAT       where this job has trained before: skip ends at once with 0, run begins anew
  --fresh                 start with the job as written, not with the plan that fitted before; a named run that failed
                          is set aside for a new one
  --deadline TIME         by when the run is over, such as 4h or 07:30: it stops at a checkpoint before, with code 75, and begins
                          no attempt that would be cut off before it gets anywhere
  --junit FILE            write a JUnit report: a case for each attempt and one for the run
  --propagate-exit-code   end with the job's own code, if that is 1-63, where it failed for a reason of its own
  --python PATH           the interpreter; by default the active environment's, then torchrun's, then python3
  --help, -h              show this

the policy, over train.toml and the defaults in ~/.config/gpurun/config.toml:
  --mode MODE             ladder: one rung at a time; predict; off: name the cause, change nothing
  --numerics WHICH        preserve: same dtypes and optimizer; mixed-precision; any
  --never NAME,…          rungs or knobs to leave alone; may be given several times
  --max-attempts N        how often the job is started at most
  --device-memory SIZE    a ceiling for each rank, such as 24GiB

torchrun's, before the script (with a train.toml: its [launch] table, or job.command):
  --nproc-per-node N      the number of ranks, or auto, gpu or cpu
  -m, --module            the script is a module, as in python -m
  --no-python             the script is a program
  --max-restarts N        restarts for failures that no rung answers
  --log-dir DIR           the folder of the job's runs, in place of .gpurun/JOB
  -r, --redirects STD     streams that go only to files: 1 (out), 2 (err), 3 (both), or RANK:STD,…
  -t, --tee STD           streams that go to files and to the console
  --local-ranks-filter R  the ranks whose output reaches the console: 0,1,…
  --role NAME             ROLE_NAME, and the prefix of the console's lines
  --master-port PORT      by default a free one for each attempt
  --rdzv-id ID            TORCHELASTIC_RUN_ID; by default a fresh one for each attempt
  --shutdown-timeout S    seconds between SIGTERM and SIGKILL; by default 25
  --nnodes N              the number of nodes, each of which starts gpurun with the same command; fixed, not 2:4
  --node-rank K           which of them this is, from 0
  --master-addr HOST      where node 0 is; or --rdzv-endpoint HOST
  --standalone and torchrun's other flags for rendezvous and monitoring are accepted and have no effect.`

// ReadHelp says what those of the verbs are that read a job and start nothing.
const ReadHelp = `--json              print one JSON document on stdout
--nproc-per-node N  the number of ranks, or auto, gpu or cpu
-m, --module        the script is a module, as in python -m
--no-python         the script is a program
--python PATH       the interpreter; by default the active environment's, then torchrun's, then python3
--help, -h          show this
Those of the policy (--mode, --numerics, --never, --device-memory) count as in "gpurun run", whose other flags
are accepted, and change nothing here.`
