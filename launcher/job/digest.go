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
// log folders are left out: a scheduler gives a restarted job new ones. A command with
// variables counts as it is typed, and one behind wrappers as the program that it is.
func digest(j *Job, text []byte) string {
	h := sha256.New()
	part := func(s string) {
		fmt.Fprintf(h, "%d:", len(s))
		// A hash takes every write.
		_, _ = io.WriteString(h, s)
	}
	words, ranks := j.digested, string(j.Launch.NprocPerNode)
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
	part(string(text))
	return hex.EncodeToString(h.Sum(nil))
}
