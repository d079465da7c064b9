package job

import (
	"crypto/sha256"
	"encoding/hex"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

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
	j := &p.resolved.job
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
		text, err := readFile(under(j.Workdir, word), largestNamed)
		if err != nil {
			continue // it is no file, or none that is a configuration
		}
		sum := sha256.Sum256(text)
		if files[word] = hex.EncodeToString(sum[:]); len(files) == mostNamed {
			break
		}
	}
	maps.Copy(files, p.resolved.variablesRead())
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
