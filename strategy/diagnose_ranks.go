package strategy

import "fmt"

// spread says what it means that one rank alone ran out of memory, or all did.
// It is empty where only one rank is known of.
func (c *fold) spread(d *Diagnosis, ev Evidence) string {
	known := ev.Ranks
	if known == 0 {
		for rank := range c.ranks {
			if rank >= 0 {
				known++ // of those that said nothing, nobody knows
			}
		}
	}
	switch {
	case known < 2 || len(d.Ranks) == 0:
		return ""
	case len(d.Ranks) == known:
		return fmt.Sprintf("all %d ranks ran out: the plan does not fit; use less memory on every rank", known)
	case len(d.Ranks) == 1:
		return fmt.Sprintf("rank %d of %d alone ran out: look for imbalance (longer samples, a larger pipeline stage, work that one rank does for all), or for another process on its device", d.Ranks[0], known)
	}
	return fmt.Sprintf("%d of %d ranks ran out, the first on rank %d", len(d.Ranks), known, d.Rank)
}
