package recipes

import (
	"fmt"
	"slices"
)

// LocalRank stands in Inner.Argv for an argument that differs from rank to rank:
// {local_rank} is the rank's number on its node. Commands of all ranks have it;
// ForRank fills it in.
const LocalRank = "--local_rank={local_rank}"

// ForRank is the command of one rank of a node.
func ForRank(argv []string, local int) []string {
	own := slices.Clone(argv)
	for i, word := range own {
		if word == LocalRank {
			own[i] = fmt.Sprintf("--local_rank=%d", local)
		}
	}
	return own
}
