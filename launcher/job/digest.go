package job

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"maps"
	"slices"
)

// digest tells commands apart: SHA-256 over kind and words of the command, working
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
	part("")
	return hex.EncodeToString(h.Sum(nil))
}

// asides are the tables and keys of a train.toml that tell nothing about the job: whom
// gpurun tells of it, and how it looks on.
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
