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
			Memory: saved(p), Time: spent(p), BytesBefore: p.BytesBefore, BytesAfter: p.BytesAfter, SecondsBefore: p.SecondsBefore, SecondsAfter: p.SecondsAfter,
		})
	}
	return all
}

// saved says the bytes: "8.8 → 6.8 GiB, at least 2.0 GiB less".
func saved(p *strategy.Price) string {
	before, after := max(p.BytesBefore, p.PredictedBefore), cmp.Or(p.BytesAfter, p.PredictedAfter)
	if before <= 0 || after <= 0 {
		return "not known"
	}
	words, less := gib(before)+" → "+gib(after), before-after
	estimated := p.PredictedBefore > 0 || p.PredictedAfter > 0
	most := ""
	switch {
	case estimated:
		most = "about "
	case p.AtLeast:
		most = "at least "
	}
	switch {
	case less > 0:
		words += fmt.Sprintf(": %s%s less (%.0f %%)", most, gib(less), 100*float64(less)/float64(before))
	case less < 0 && (estimated || !p.AtLeast):
		words += ": " + gib(-less) + " more"
	}
	return words
}

// spent says the time of a step: "0.20 → 0.26 s: 1.30 × as long".
func spent(p *strategy.Price) string {
	switch {
	case p.SecondsAfter <= 0:
		return "not known"
	case p.SecondsBefore <= 0:
		return fmt.Sprintf("%.3g s; before, no step was measured", p.SecondsAfter)
	}
	words := fmt.Sprintf("%.3g → %.3g s: %.2f × as long", p.SecondsBefore, p.SecondsAfter, p.SecondsAfter/p.SecondsBefore)
	if p.Estimated {
		words += ", by the planner's estimate of the time before"
	}
	return words
}
