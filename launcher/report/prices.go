package report

import (
	"cmp"
	"fmt"

	"github.com/gpurun/gpurun/strategy"
)

// A price is what the changes before an attempt saved and cost.
type price struct {
	N                           int
	Rungs, Changed              string
	Memory, Time                string
	BytesBefore, BytesAfter     int64
	SecondsBefore, SecondsAfter float64
}

// prices are those that are known.
func (d *Data) prices() (all []price) {
	for i := range d.Attempts {
		p := d.Attempts[i].Price
		if p == nil || len(all) == mostRows {
			continue
		}
		all = append(all, price{
			N: d.Attempts[i].N, Rungs: d.say.text(joined(p.Rungs), longLine), Changed: d.say.text(p.Changed.String(), longLine),
			Memory: cmp.Or(p.Memory(), "not known"), Time: seconds(p), BytesBefore: p.BytesBefore, BytesAfter: p.BytesAfter, SecondsBefore: p.SecondsBefore, SecondsAfter: p.SecondsAfter,
		})
	}
	return all
}

// seconds says how long a step takes, and where that was only estimated.
func seconds(p *strategy.Price) string {
	switch after := fmt.Sprintf("%.3g s", p.SecondsAfter); {
	case p.SecondsAfter <= 0:
		return "not known"
	case p.SecondsBefore <= 0:
		return after + "; before, no step was measured"
	case p.Estimated:
		return fmt.Sprintf("%s: %s measured, the time before is the planner's estimate", p.Time(), after)
	default:
		return fmt.Sprintf("%s: %.3g → %s", p.Time(), p.SecondsBefore, after)
	}
}
