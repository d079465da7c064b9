package format

import (
	"fmt"
	"github.com/gpurun/gpurun/launcher/lazy"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// Versions bounds the versions of Python packages: {"transformers": ">=4.36, <6"}.
type Versions map[string]string

var bound = lazy.Regexp(`^(>=|<=|==|!=|<|>)\s*([0-9]+(?:\.[0-9]+)*)$`)

// check reports the first bound that does not parse.
func (v Versions) check() error {
	for _, name := range slices.Sorted(maps.Keys(v)) {
		for part := range strings.SplitSeq(v[name], ",") {
			if !bound().MatchString(strings.TrimSpace(part)) {
				return fmt.Errorf("%q is not a bound: want \">=4.36, <6\"", strings.TrimSpace(part))
			}
		}
	}
	return nil
}

// Outside is the first installed package that is out of bounds, as "torch 2.1"; empty if all are
// inside. A package whose version is not known is inside.
func (v Versions) Outside(installed map[string]string) string {
	for _, name := range slices.Sorted(maps.Keys(v)) {
		version, known := installed[name]
		for part := range strings.SplitSeq(v[name], ",") {
			m := bound().FindStringSubmatch(strings.TrimSpace(part))
			if known && m != nil && !slices.Contains(orders[m[1]], CompareVersions(version, m[2])) {
				return name + " " + version
			}
		}
	}
	return ""
}

// orders are the results of a comparison that each operator allows.
var orders = map[string][]int{">=": {0, 1}, "<=": {-1, 0}, "<": {-1}, ">": {1}, "!=": {-1, 1}, "==": {0}}

// CompareVersions compares the leading numbers of two versions; the rest, such as rc1 or +cu124,
// does not count.
func CompareVersions(a, b string) int {
	x, y := release(a), release(b)
	n := max(len(x), len(y))
	return slices.Compare(append(x, make([]int, n-len(x))...), append(y, make([]int, n-len(y))...))
}

var leadingNumbers = lazy.Regexp(`^\d+(\.\d+)*`)

// release returns the numbers of a version: 2.9.0rc1+cu128 is 2, 9, 0.
func release(version string) []int {
	var numbers []int
	for part := range strings.SplitSeq(leadingNumbers().FindString(version), ".") {
		if n, err := strconv.Atoi(part); err == nil {
			numbers = append(numbers, n)
		}
	}
	return numbers
}
