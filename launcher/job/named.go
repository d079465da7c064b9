package job

import (
	"crypto/sha256"
	"encoding/hex"
	"path/filepath"
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

// NamedFiles are the configuration files that the command's arguments name, as they are
// now: SHA-256, in hexadecimal, by the name as written. They tell whether what has trained
// is what would train now. They are not part of the digest: an argument may as well name a
// file that the job writes, and a run that was cut off must go on then.
func (p *Prepared) NamedFiles() map[string]string {
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
	return files
}
