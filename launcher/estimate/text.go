package estimate

import (
	"fmt"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/gpurun/gpurun/strategy"
	"github.com/gpurun/gpurun/strategy/memory"
)

// Text returns the forecast as text: phases by parts, cards, and assumptions.
func (a *Forecast) Text() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s parameters, %s\n%s\n\n", count(a.Architecture.Parameters), shapeOf(a.Architecture), a.planLine())
	table := tabwriter.NewWriter(&b, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(table, "each GPU\tweights\tgradients\toptimizer\tactivations\tbuffers\tsum\tat most\t\n")
	bounds := a.Bounds.All()
	for n, p := range a.Instants.All() {
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t\n", memory.Names[n], cell(p.Weights), cell(p.Gradients),
			cell(p.Optimizer), cell(p.Activations),
			cell(p.Buffers), cell(p.Sum()), cell(bounds[n].Sum()))
	}
	table.Flush()
	fmt.Fprintf(&b, "\npeak: %s in %s, at most %s with the allocator's rounding; %s more lie outside the allocator\n",
		strategy.GiB(a.Mean), a.Instant, strategy.GiB(a.Bound), strategy.GiB(a.Outside))
	for _, m := range a.measured {
		fmt.Fprintf(&b, "measured in an earlier run of this plan: %s\n", strategy.GiB(m.Peak))
	}
	fmt.Fprintf(&b, "cards: %s\n", a.cardsLine())
	if line := a.hostLine(); line != "" {
		fmt.Fprintf(&b, "%s\n", line)
	}
	fmt.Fprintf(&b, "\nassumed:\n")
	for _, line := range a.assumed() {
		fmt.Fprintf(&b, "  %s\n", line)
	}
	return b.String()
}

// cell is a number of bytes in a table, empty ones as a dash.
func cell(bytes int64) string {
	if bytes == 0 {
		return "–"
	}
	return strategy.GiB(bytes)
}

// count is a number of parameters for people.
func count(n int64) string {
	switch {
	case n >= 1e12:
		return fmt.Sprintf("%.4g T", float64(n)/1e12)
	case n >= 1e9:
		return fmt.Sprintf("%.4g B", float64(n)/1e9)
	}
	return fmt.Sprintf("%.4g M", float64(n)/1e6)
}

func shapeOf(a memory.Architecture) string {
	return fmt.Sprintf("%d layers, hidden %d, intermediate %d, vocabulary %d", a.Layers, a.Hidden, a.Intermediate,
		a.Vocabulary)
}

// planLine is the plan in a line.
func (a *Forecast) planLine() string {
	p := a.Plan
	words := []string{p.Compute, a.weights + " weights", p.Optimizer}
	switch {
	case p.Sharding == "fsdp":
		words = append(words, fmt.Sprintf("FSDP over %d GPUs", p.DataParallel))
	case p.Sharding != "none":
		words = append(words, fmt.Sprintf("ZeRO-%s over %d GPUs", strings.TrimPrefix(p.Sharding, "zero"), p.DataParallel))
	case p.DataParallel > 1:
		words = append(words, fmt.Sprintf("DDP over %d GPUs", p.DataParallel))
	default:
		words = append(words, "one GPU")
	}
	words = append(words, fmt.Sprintf("micro batch %d × %d tokens", p.MicroBatch, p.Sequence))
	if p.Accumulation > 1 {
		words = append(words, fmt.Sprintf("accumulation %d", p.Accumulation))
	}
	words = append(words, strings.Replace(p.Checkpointing, "none", "no", 1)+" checkpointing")
	switch p.LossParts {
	case "chunked":
		words = append(words, "loss in chunks")
	case "fused":
		words = append(words, "fused loss")
	}
	if p.StepInBackward {
		words = append(words, "optimizer in the backward pass")
	}
	for _, o := range []struct{ name, where string }{{"optimizer", p.OffloadOptimizer}, {"parameters", p.OffloadParam},
		{"activations", p.OffloadActivations}} {
		if o.where != "none" {
			words = append(words, o.name+" on "+o.where)
		}
	}
	return strings.ReplaceAll(strings.Join(words, ", "), "over 1 GPUs", "over 1 GPU")
}

// cardsLine is on which cards the plan fits, and on which with checkpointing.
func (a *Forecast) cardsLine() string {
	line := fits(a.Cards)
	if a.checkpointed != nil {
		before, had := a.Smallest()
		after, has := a.checkpointed.Smallest()
		if has && (!had || after.Gigabytes < before.Gigabytes) {
			line += fmt.Sprintf("; with full checkpointing it fits %d GB", after.Gigabytes)
		}
	}
	return line
}

// fits lists the cards that are large enough, and those that may be.
func fits(cards []memory.Card) string {
	var sure string
	var sizes, may []string
	for i, c := range cards {
		if c.Fits {
			sure = fmt.Sprintf("fits %d GB", c.Gigabytes)
			if i < len(cards)-1 {
				sure += " and up"
			}
			break
		}
		sizes = append(sizes, strconv.Itoa(c.Gigabytes))
		if c.May {
			may = append(may, strconv.Itoa(c.Gigabytes))
		}
	}
	if sure == "" {
		sure = "fits none of " + join(sizes) + " GB for certain"
	}
	if len(may) > 0 {
		sure += ", may fit " + join(may) + " GB"
	}
	return sure
}

// hostLine is what the host must have.
func (a *Forecast) hostLine() string {
	line := fmt.Sprintf("host memory: %s for all ranks together", strategy.GiB(a.Host))
	if a.Loading {
		line += ", while the model is loaded: each rank makes its own"
	}
	if a.NVMe > 0 {
		line += fmt.Sprintf("; NVMe: %s", strategy.GiB(a.NVMe))
	}
	return line
}
