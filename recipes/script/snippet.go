package script

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/gpurun/gpurun/strategy"
)

// Snippet is the lines that would give the script gradient accumulation, with its own names if
// they are known; nil if it has some, or has no training loop.
func (s *Analysis) Snippet() []string {
	if s.Missing[strategy.GradientAccumulationSteps] == "" || len(s.facts.Steps) != 1 || len(s.facts.Backwards) != 1 {
		return nil
	}
	if micro, known := s.Certain(strategy.MicroBatchSize); known && micro.Refusal != "" {
		return nil // it would not help
	}
	if _, sum := s.facts.sum(nil); sum || len(s.facts.Offsets) > 0 {
		return nil // for a sum the lines would be wrong, and in a loop over samples they would never step
	}
	made, back := s.facts.Steps[0], s.facts.Backwards[0]
	call := strings.TrimSuffix(made.Text, ".step")
	value, lines := "accum", []string{}
	if parser, near := s.parser(); parser != "" {
		value = cmp.Or(s.facts.Namespace, "args") + ".accum"
		lines = append(lines, fmt.Sprintf("%s.add_argument(\"--accum\", type=int, default=1)   # near %s", parser, near))
	} else {
		lines = append(lines, "accum = 1   # from the command line, such as --accum")
	}
	if i := slices.IndexFunc(s.facts.Bounds, func(b use) bool { return b.Kind == "batch" }); i >= 0 {
		b := s.facts.Bounds[i]
		lines = append(lines, fmt.Sprintf("# %s: make the loop %s times as long: it counts batches, and a step then takes %s of them", b.location, value, value))
	}
	lines = append(lines,
		fmt.Sprintf("(%s / %s).backward()   # in place of %s.backward(), %s", back.Text, value, back.Text, back.location),
		fmt.Sprintf("if (i + 1) %% %s == 0:   # i counts the batches from 0: for i, … in enumerate(…), %s", value, made.location))
	for _, u := range s.facts.Unlike {
		if u.Kind == "gradients" && strings.Contains(u.Text, "clip") {
			lines = append(lines, fmt.Sprintf("    %s   # of %s: here, and not for each batch", u.Text, u.location))
		}
	}
	return append(lines, fmt.Sprintf("    %s.step()", call), fmt.Sprintf("    %s.zero_grad()   # and nowhere else in the loop", call))
}

// parser is the name of the script's parser, and the place where its last argument is added.
func (s *Analysis) parser() (name string, near location) {
	for _, one := range s.facts.Settings {
		if one.Kind == "argparse" && one.Parser != "" && !strings.ContainsAny(one.Parser, "([") {
			name, near = one.Parser, one.location
		}
	}
	return name, near
}
