package commandline

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
