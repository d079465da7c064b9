package commandline

import (
	"strconv"
	"strings"
)

// Std is a set of standard streams, with torchrun's numbers.
type Std uint8

// The sets of streams.
const (
	NoStd Std = 0
	Out   Std = 1
	Err   Std = 2
	Both  Std = 3
)

// Has reports whether all streams of want are in the set.
func (s Std) Has(want Std) bool { return s&want == want }

// Streams chooses standard streams by local rank.
type Streams struct {
	// All holds for ranks that Ranks does not name.
	All Std
	// Ranks maps a local rank to its streams; nil where All says it all.
	Ranks map[int]Std
}

// For returns the streams of one local rank.
func (s Streams) For(localRank int) Std {
	if std, named := s.Ranks[localRank]; named {
		return std
	}
	return s.All
}

// parseStreams reads "3" for every rank, or "0:3,1:1" for some: 0 none, 1 out, 2
// err, 3 both. torchrun has single digits for ranks here; more are read too.
func parseStreams(v string) (s Streams, ok bool) {
	digit := func(s string) (Std, bool) {
		if len(s) != 1 || s[0] < '0' || s[0] > '3' {
			return NoStd, false
		}
		return Std(s[0] - '0'), true
	}
	if all, ok := digit(v); ok {
		return Streams{All: all}, true
	}
	ranks := map[int]Std{}
	for pair := range strings.SplitSeq(v, ",") {
		rank, which, _ := strings.Cut(pair, ":")
		n, err := strconv.ParseUint(rank, 10, 16)
		std, ok := digit(which)
		if err != nil || !ok {
			return Streams{}, false
		}
		ranks[int(n)] = std
	}
	return Streams{Ranks: ranks}, true
}
