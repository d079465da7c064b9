package job

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/gpurun/gpurun/launcher/cluster"
	"github.com/gpurun/gpurun/launcher/errext"
	"github.com/gpurun/gpurun/launcher/mask"
	"github.com/gpurun/gpurun/strategy"
)

// DigestVersion is the version of the digest that a new run is stored with.
const DigestVersion = 4

// digests tell a job from every other, as each version of gpurun did it.
type digests map[int]string

// Digest tells this job from every other: its command, its train.toml and the
// configuration files that it names. It begins with its version and a colon, except
// for version 1, which has none. It is false for a version that this gpurun does not know.
func (p *Prepared) Digest(version int) (string, bool) {
	d, known := p.digests[version]
	return d, known
}

// Same reports whether a run was begun with this job, going by the digest that was
// stored then. known is false for the digest of a newer gpurun, which cannot be told.
func (p *Prepared) Same(stored string) (same, known bool) {
	version := 1
	if prefix, _, versioned := strings.Cut(stored, ":"); versioned {
		n, err := strconv.Atoi(prefix)
		if err != nil {
			return false, false
		}
		version = n
	}
	d, known := p.Digest(version)
	return known && d == stored, known
}

// digests computes the digest in every version. Version 1 has all files that any
// recipe that might have fitted takes the command to name, so that another gpurun
// with other recipes can come to another one; version 2 has those of the job's own
// recipe, and all of them only for a job of no framework. Version 3 has three parts, so
// that it can be told which of them differs (launcher.GoOn): the command, what the
// train.toml says of the job, and those files. Version 4 adds what of the environment
// makes another job; where that is something, an earlier version says too little.
func (r Resolved) digests() digests {
	all := slices.Sorted(maps.Keys(r.command.Files))
	own := all
	if r.recipe.Name != "" {
		own = slices.Sorted(slices.Values(r.recipe.FilesNamed(r.command)))
	}
	parts := strings.Join(append(r.job.digests3[:], short(r.listed(own))), ".")
	environment := r.environment()
	if environment == "" {
		return digests{1: r.digestOver(all), 2: "2:" + r.digestOver(own), 3: "3:" + parts, 4: "4:" + parts + "."}
	}
	return digests{4: "4:" + parts + "." + r.keyed(environment)}
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
	mac := hmac.New(sha256.New, []byte(r.job.digests3[0]))
	mac.Write([]byte(text)) // a hash takes every write
	return hex.EncodeToString(mac.Sum(nil)[:16])
}

// digestOver is SHA-256, in hexadecimal, over the job's own digest and files that
// its command names.
func (r Resolved) digestOver(files []string) string {
	sum := sha256.Sum256(append([]byte(r.job.Digest+"\n"), r.listed(files)...))
	return hex.EncodeToString(sum[:])
}

// listed has a line for each file, with its name and the digest of what it holds.
func (r Resolved) listed(files []string) (text []byte) {
	for _, name := range files {
		text = fmt.Appendf(text, "%q %x\n", name, sha256.Sum256(r.command.Files[name]))
	}
	return text
}

// identify computes the digests of a job, and of the train.toml that it was read from.
func (j *Job) identify(text []byte, root map[string]any) {
	j.Digest = digest(j, text)
	j.digests3 = [2]string{short([]byte(digest(j, nil))), fileDigest(root)}
}
