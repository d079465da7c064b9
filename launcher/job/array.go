package job

import (
	"fmt"
	"regexp"
	"slices"
)

var anyNumber = regexp.MustCompile(`\d+`)

// sharedCheckpoints warns of an array whose elements look for their checkpoints in the
// same place: one would go on from another's. A place that has the element's number
// in its name is its own.
func (s Inspected) sharedCheckpoints() []string {
	element, latest := s.place.Element, s.job.Resume.Latest
	if element == "" || latest == "" || slices.Contains(anyNumber.FindAllString(latest, -1), element) {
		return nil
	}
	return []string{fmt.Sprintf("this is element %s of an array, and every element looks for checkpoints in %s: one may go on from another's; give each a folder of its own",
		element, latest)}
}
