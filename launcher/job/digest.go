package job

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/gpurun/gpurun/launcher/cluster"
	"github.com/gpurun/gpurun/launcher/errext"
	"github.com/gpurun/gpurun/launcher/mask"
	"github.com/gpurun/gpurun/strategy"
)

// digest identifies a command: SHA-256 over kind and words of the command, working
// directory and number of ranks. Each part is preceded
// by its length, so that no two lists of parts look alike. Ports, run ids and
// log folders are left out: a scheduler gives a restarted job new ones. A command with
// variables counts as it is typed, and one behind wrappers as the program that it is.
func digest(j *Job) string {
	h := sha256.New()
	part := func(s string) {
		fmt.Fprintf(h, "%d:", len(s))
		// A hash takes every write.
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
var asides = map[string][]string{"notify": nil, "metrics": nil, "launch": {"stall_timeout", "log_limit", "preflight"}}

// fileDigest is a short digest of what a train.toml says of the job, however it is laid out.
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
	return short(fmt.Appendf(nil, "%#v", said)) // with the keys of its maps in order
}

// short is 128 bits of SHA-256, in hexadecimal.
func short(text []byte) string {
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:16])
}

// digest has a part for the command, one for what train.toml says of the job, one for the
// configuration files that the command names, and one for what of the environment makes
// another job. The files are those of the job's recipe; for a job of no framework, all that
// any recipe takes the command to name.
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

// environment has a line for the index in an array, and for each variable that the
// command names or sets; empty where there is none. Secrets, and variables that differ
// with each start of the same job, are left out.
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

// passing reports whether a variable may change and the job stay the same.
func passing(name string) bool { return cluster.Volatile(name) || mask.Named(name) }

// Comparable explains why nothing shows whether a run that has trained is of this job: a shell
// script reads what variables it likes. The error has a hint.
func (p *Prepared) Comparable() error {
	script := p.Job.shellScript()
	if script == "" {
		return nil
	}
	return errext.WithCode(errext.Errorf("write the command that the script runs in its place; or leave --if-trained out, and name each run by --run-id: one that has trained ends at once",
		"--if-trained skip: %s is run by a shell, and which variables it reads cannot be known: a run that has trained may have had others", script), strategy.CodeUsage)
}

// keyed is a short digest of values that may be short themselves, such as a seed: no list
// of digests of such values has it, since the key is the job.
func (r Resolved) keyed(text string) string {
	mac := hmac.New(sha256.New, []byte(r.Job.digests[0]))
	mac.Write([]byte(text)) // a hash takes every write
	return hex.EncodeToString(mac.Sum(nil)[:16])
}

// listed has a line for each file, with its name and the digest of what it holds.
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
	// mostNamed bounds how many files of a command are looked at, and largestNamed their
	// size in bytes: a configuration is smaller.
	mostNamed    = 64
	largestNamed = 1 << 20
)

// configEndings are how the names of configuration files end; some frameworks write them in
// Python.
var configEndings = []string{".yaml", ".yml", ".json", ".toml", ".ini", ".cfg", ".conf", ".py"}

// readsVariable matches where a source in Python, or a configuration that OmegaConf
// resolves, reads a variable by its name.
var readsVariable = regexp.MustCompile(`(?:environb?(?:\.\w+)?\s*[\[(]|getenvb?\s*\()\s*[bru]?["'](\w+)["']|\$\{(?:oc\.)?env:(\w+)`)

// Inputs are the configuration files that the command's arguments name, as they are
// now: SHA-256, in hexadecimal, by the name as written; and a keyed digest of each
// variable that the job's own source or configuration reads, by "$NAME", empty where it is
// not set. They show whether what has trained is what would train now. They are not part of
// the digest: an argument may as well name a file that the job writes, and a run that was
// cut off must go on then.
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
			continue // it is no file, or none that is a configuration
		}
		sum := sha256.Sum256(text)
		if files[word] = hex.EncodeToString(sum[:]); len(files) == mostNamed {
			break
		}
	}
	maps.Copy(files, p.variablesRead())
	return files
}

// variablesRead are the variables that the sources read, and that say what is trained.
func (r Resolved) variablesRead() map[string]string {
	read := map[string]string{}
	look := func(text []byte) {
		for _, m := range readsVariable.FindAllSubmatch(text, -1) {
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
