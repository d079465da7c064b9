package job

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/gpurun/gpurun/launcher/cluster"
	"github.com/gpurun/gpurun/launcher/errext"
	"github.com/gpurun/gpurun/launcher/lazy"
	"github.com/gpurun/gpurun/launcher/mask"
	"github.com/gpurun/gpurun/strategy"
)

// digest identifies a command: SHA-256 over kind and words of the command, working directory and number of
// ranks. Each part is preceded by its length, so that different lists of parts have different digests. Ports,
// run ids and log folders are omitted, because a scheduler gives a restarted job new ones. A command with
// variables counts as typed, and a command after wrappers as a program.
func digest(j *Job) string {
	h := sha256.New()
	part := func(s string) {
		fmt.Fprintf(h, "%d:", len(s))
		// A hash never returns an error.
		_, _ = io.WriteString(h, s)
	}
	words, ranks := j.digested, j.Launch.NprocPerNode
	if words == nil {
		words = append([]string{string(j.Kind)}, j.Argv...)
	}
	if j.ranksTyped {
		ranks = ""
	}
	part(words[0])
	part(j.Workdir)
	part(ranks)
	part(fmt.Sprint(len(words) - 1))
	for _, word := range words[1:] {
		part(word)
	}
	part("")
	return hex.EncodeToString(h.Sum(nil))
}

// asides are the tables and keys of a train.toml that do not change the job: notifications
// and observation.
var asides = map[string][]string{"notify": nil, "metrics": nil, "slurm": nil,
	"launch": {"stall_timeout", "log_limit", "preflight"}}

// fileDigest returns a short digest of the content of a train.toml, independent of its layout.
func fileDigest(root map[string]any) string {
	said := maps.Clone(root)
	for name, keys := range asides {
		table, set := said[name].(map[string]any)
		if !set {
			continue
		}
		table = maps.Clone(table)
		maps.DeleteFunc(table, func(key string, _ any) bool { return keys == nil || slices.Contains(keys, key) })
		if said[name] = table; len(table) == 0 {
			delete(said, name)
		}
	}
	return short(fmt.Appendf(nil, "%#v", said)) // %#v sorts the keys of maps
}

// short returns 128 bits of SHA-256 in hexadecimal.
func short(text []byte) string {
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:16])
}

// digest has four parts: the command, the content of train.toml, the configuration files that the command
// names, and the part of the environment that makes it another job. The files are those of the job's recipe;
// for a job without a framework, all files that the command names according to any recipe.
func (r Resolved) digest() string {
	own := slices.Sorted(maps.Keys(r.command.Files))
	if r.recipe.Name != "" {
		own = slices.Sorted(slices.Values(r.recipe.FilesNamed(r.command)))
	}
	parts := strings.Join(append(r.Job.digests[:], short(r.listed(own))), ".")
	environment := r.environment()
	if environment != "" {
		environment = r.keyed(environment)
	}
	return "4:" + parts + "." + environment
}

// environment has a line for the index in a job array, and one for each variable that the command names or
// sets; it may be empty. It omits secrets, and variables that differ in each start of the same job.
func (r Resolved) environment() string {
	var b strings.Builder
	if r.Where.Element != "" {
		fmt.Fprintf(&b, "%q\n", r.Where.Element)
	}
	names := slices.Concat(r.Job.variables, slices.Collect(maps.Keys(r.Job.Env)))
	slices.Sort(names)
	for _, name := range slices.Compact(names) {
		if value, set := r.env.Lookup(name); !passing(name) {
			fmt.Fprintf(&b, "%s %v %q\n", name, set, value)
		}
	}
	return b.String()
}

// passing reports whether a variable may change without making another job.
func passing(name string) bool { return cluster.Volatile(name) || mask.Named(name) }

// Comparable returns why gpurun cannot know whether an earlier run was of this same job: a shell script may
// read any variable. The error has a hint.
func (p *Prepared) Comparable() error {
	script := p.Job.shellScript()
	if script == "" {
		return nil
	}
	return errext.WithCode(errext.Errorf("write the command that the script runs in its place; or omit --if-trained, and name each run by --run-id: one that has trained ends at once",
		"--if-trained skip: %s is run by a shell, and which variables it reads cannot be known: a run that has trained may have had others", script), strategy.CodeUsage)
}

// keyed returns a short digest of a value that may be short itself, such as a seed. The job is the key, so
// that a precomputed list of digests does not reveal the value.
func (r Resolved) keyed(text string) string {
	mac := hmac.New(sha256.New, []byte(r.Job.digests[0]))
	mac.Write([]byte(text)) // a hash never returns an error
	return hex.EncodeToString(mac.Sum(nil)[:16])
}

// listed returns a line for each file, with its name and the digest of its content.
func (r Resolved) listed(files []string) (text []byte) {
	for _, name := range files {
		text = fmt.Appendf(text, "%q %x\n", name, sha256.Sum256(r.command.Files[name]))
	}
	return text
}

// identify computes the digests of a job, and of the train.toml that it was read from.
func (j *Job) identify(root map[string]any) {
	j.digests = [2]string{short([]byte(digest(j))), fileDigest(root)}
}

const (
	// mostNamed bounds how many files of a command are read, and largestNamed their size in bytes:
	// configurations are smaller.
	mostNamed    = 64
	largestNamed = 1 << 20
)

// configEndings are the extensions of configuration files. Those of some frameworks are Python.
var configEndings = []string{".yaml", ".yml", ".json", ".toml", ".ini", ".cfg", ".conf", ".py"}

// readsVariable matches code that reads a variable by name, in Python or in a configuration that OmegaConf
// resolves.
var readsVariable = lazy.Regexp(
	`(?:environb?(?:\.\w+)?\s*[\[(]|getenvb?\s*\()\s*[bru]?["'](\w+)["']|\$\{(?:oc\.)?env:(\w+)`)

// Inputs returns the current state of the job's inputs, to show whether a run that has trained would train
// the same now: the SHA-256, in hexadecimal, of each configuration file that the command's arguments name, by
// the name as written; and a keyed digest of each variable that the job's own source or configuration reads,
// by "$NAME", empty if it is not set.
//
// They are not part of the digest: an argument may name a file that the job itself writes, and an interrupted
// run must be resumed nevertheless.
func (p *Prepared) Inputs() map[string]string {
	j := &p.Job
	if len(j.Argv) == 0 {
		return nil
	}
	files := map[string]string{}
	for _, word := range j.Argv[1:] {
		if _, value, assigned := strings.Cut(word, "="); assigned {
			word = value // --config=c.yaml, config=c.yaml
		}
		if files[word] != "" || !slices.Contains(configEndings, strings.ToLower(filepath.Ext(word))) {
			continue
		}
		text, err := ReadFile(under(j.Workdir, word), largestNamed)
		if err != nil {
			continue // no file, or no configuration
		}
		sum := sha256.Sum256(text)
		if files[word] = hex.EncodeToString(sum[:]); len(files) == mostNamed {
			break
		}
	}
	maps.Copy(files, p.variablesRead())
	return files
}

// variablesRead returns the variables that the sources read and that may change the training.
func (r Resolved) variablesRead() map[string]string {
	read := map[string]string{}
	look := func(text []byte) {
		for _, m := range readsVariable().FindAllSubmatch(text, -1) {
			name := string(m[1]) + string(m[2])
			if passing(name) {
				continue
			}
			if value, set := r.env.Lookup(name); set {
				read["$"+name] = r.keyed(value)
			} else {
				read["$"+name] = ""
			}
		}
	}
	for _, s := range r.sources() {
		look(s.Text)
	}
	for _, text := range r.command.Files {
		look(text)
	}
	return read
}

// neutralNumbers and neutralNames are options that change no shape, count or dtype, and so not the memory of a job:
// numbers, and names of runs and places of output. They are written with "_", and without what precedes the last ".".
var (
	neutralNumbers = []string{"seed", "random_seed", "manual_seed", "rng_seed", "global_seed", "data_seed", "lr",
		"learning_rate", "base_lr", "max_lr", "min_lr", "peak_lr", "base_learning_rate"}
	neutralNames = []string{
		"run_name", "run_id", "exp_name", "experiment_name", "wandb_name", "wandb_run_name", "wandb_project", "wandb_group",
		"project_name", "job_name",
		"output", "output_dir", "out_dir", "outdir", "output_path", "save_dir", "save_path", "log_dir", "logdir",
		"logging_dir", "results_dir",
	}
)

// withoutNeutral returns the words of a command without the values of neutral options.
func withoutNeutral(argv []string) []string {
	words := slices.Clone(argv)
	for i := 1; i < len(words); i++ {
		name, value, assigned := strings.Cut(words[i], "=")
		dashed := strings.HasPrefix(name, "-")
		switch {
		case assigned && neutral(name, value):
			words[i] = name + "="
		case !assigned && dashed && i+1 < len(words) && neutral(name, words[i+1]):
			words[i+1] = ""
			i++
		}
	}
	return words
}

// neutral reports whether an option is neutral with a value.
func neutral(option, value string) bool {
	name := strings.ReplaceAll(strings.TrimLeft(option, "-+"), "-", "_")
	name = name[strings.LastIndexByte(name, '.')+1:]
	if slices.Contains(neutralNumbers, name) {
		_, err := strconv.ParseFloat(value, 64)
		return err == nil
	}
	return slices.Contains(neutralNames, name) && value != "" && !strings.HasPrefix(value, "-")
}
