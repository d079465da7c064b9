package job

import "fmt"

// A Detection is what a job's recipe was recognised by.
type Detection struct {
	Recipe     string      `json:"recipe"` // empty: none
	Evidence   []string    `json:"evidence"`
	Candidates []Candidate `json:"candidates"`
}

// A Candidate is a recipe of whose marks the job has some.
type Candidate struct {
	Recipe   string   `json:"recipe"`
	Evidence []string `json:"evidence"`
	Matched  bool     `json:"matched"`
	Yields   string   `json:"yields_to,omitempty"`
}

// Detection shows which recipe the job gets, and what else it could have been.
func (p *Prepared) Detection() (Detection, error) {
	candidates, err := p.Candidates()
	if err != nil {
		return Detection{}, err
	}
	name, evidence := p.Recipe()
	d := Detection{Recipe: name, Evidence: append([]string{}, evidence...), Candidates: []Candidate{}}
	for _, c := range candidates {
		d.Candidates = append(d.Candidates, Candidate{c.Recipe.Name, c.Evidence, c.Matched, c.Yields})
	}
	return d, nil
}

// Against says why a candidate is not the job's recipe.
func (c Candidate) Against() string {
	switch {
	case c.Yields != "":
		return fmt.Sprintf("not %s: it gives way to %s", c.Recipe, c.Yields)
	case c.Matched:
		return fmt.Sprintf("not %s: more than one recipe fits: name it in job.recipe", c.Recipe)
	}
	return fmt.Sprintf("not %s: these marks are not enough", c.Recipe)
}
