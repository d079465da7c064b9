package job

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
)

// digest tells jobs apart: SHA-256 over kind and words of the command, working
// directory, number of ranks and the text of train.toml. Each part is preceded
// by its length, so that no two lists of parts look alike. Ports, run ids and
// log folders are left out: a scheduler gives a restarted job new ones.
func digest(j *Job, text []byte) string {
	h := sha256.New()
	part := func(s string) {
		fmt.Fprintf(h, "%d:", len(s))
		// A hash takes every write.
		_, _ = io.WriteString(h, s)
	}
	part(string(j.Kind))
	part(j.Workdir)
	part(string(j.Launch.NprocPerNode))
	part(fmt.Sprint(len(j.Argv)))
	for _, word := range j.Argv {
		part(word)
	}
	part(string(text))
	return hex.EncodeToString(h.Sum(nil))
}
