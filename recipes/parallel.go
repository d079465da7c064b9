package recipes

import (
	"fmt"
	"github.com/gpurun/gpurun/recipes/format"
	"strconv"
)

// Parallel completes a topology by what the command says about model
// parallelism: where the caller has not said how many ranks see different samples,
// they are the ranks over the product of the recipe's sizes.
func (r Recipe) Parallel(cmd Command, at Topology) (Topology, error) {
	return parallel(format.NewDraft(r.Recipe, cmd), at)
}

func parallel(d *format.Draft, at Topology) (Topology, error) {
	if at.Plain || at.DataParallel > 0 && at.DataParallel != at.Ranks {
		return at, nil
	}
	product := 1
	for _, places := range d.Recipe.Model {
		n, err := degree(d, places)
		if err != nil {
			return at, err
		}
		product *= n
	}
	ranks := max(at.Ranks, 1)
	if ranks%product != 0 {
		return at, fmt.Errorf("the model is spread over %d ranks, which does not divide %d", product, ranks)
	}
	at.DataParallel = ranks / product
	return at, nil
}

// degree is one of the sizes: what the strongest place that holds a value says.
func degree(d *format.Draft, places []format.Place) (int, error) {
	for _, p := range d.Existing(places) {
		word, found, err := p.Read(d)
		if err != nil {
			return 0, fmt.Errorf("%s: %w", p, err)
		}
		if !found {
			continue
		}
		n, err := strconv.Atoi(fmt.Sprint(word))
		if err != nil {
			return 0, fmt.Errorf("%s: %v is not a whole number", p, word)
		}
		return max(n, 1), nil // 0 and -1 leave it to the framework
	}
	return 1, nil
}
