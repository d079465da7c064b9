package job

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/gpurun/gpurun/launcher/cluster"
	"github.com/gpurun/gpurun/launcher/errext"
	"github.com/gpurun/gpurun/launcher/mask"
	"github.com/gpurun/gpurun/strategy"
)

// Digest tells this job from every other. Its parts say what differs (launcher.GoOn).
func (p *Prepared) Digest() string { return p.digest }

// digest has a part for the command, one for what train.toml says of the job, one for the
// configuration files that the command names, and one for what of the environment makes
// another job. The files are those of the job's recipe; for a job of no framework, all that
// any recipe takes the command to name.
func (r Resolved) digest() string {
	own := slices.Sorted(maps.Keys(r.command.Files))
	if r.recipe.Name != "" {
		own = slices.Sorted(slices.Values(r.recipe.FilesNamed(r.command)))
	}
	parts := strings.Join(append(r.job.digests[:], short(r.listed(own))), ".")
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
	if r.place.Element != "" {
		fmt.Fprintf(&b, "%q\n", r.place.Element)
	}
	names := slices.Concat(r.job.variables, slices.Collect(maps.Keys(r.job.Env)))
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

// Comparable says why nothing shows whether a run that has trained is of this job: a shell
// script reads what variables it likes. The error has a hint.
func (p *Prepared) Comparable() error {
	script := p.resolved.job.shellScript()
	if script == "" {
		return nil
	}
	return errext.WithCode(errext.Errorf("write the command that the script runs in its place; or leave --if-trained out, and name each run by --run-id: one that has trained ends at once",
		"--if-trained skip: %s is run by a shell, and which variables it reads cannot be known: a run that has trained may have had others", script), strategy.CodeUsage)
}

// keyed is a short digest of values that may be short themselves, such as a seed: no list
// of digests of such values has it, since the key is the job.
func (r Resolved) keyed(text string) string {
	mac := hmac.New(sha256.New, []byte(r.job.digests[0]))
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
