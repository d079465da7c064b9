package format

import (
	"cmp"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Versions bounds the versions of Python packages: {"transformers": ">=4.36, <6"}.
type Versions map[string]string

var bound = regexp.MustCompile(`^(>=|<=|==|!=|<|>)\s*([0-9]+(?:\.[0-9]+)*)$`)

// check reports the first bound that cannot be read.
func (v Versions) check() error {
	for _, name := range slices.Sorted(maps.Keys(v)) {
		for part := range strings.SplitSeq(v[name], ",") {
			if !bound.MatchString(strings.TrimSpace(part)) {
				return fmt.Errorf("%q is no bound: want \">=4.36, <6\"", strings.TrimSpace(part))
			}
		}
	}
	return nil
}

// Outside is the first installed package that is out of bounds, as "torch 2.1";
// empty where all are inside. A package whose version is not known is inside.
func (v Versions) Outside(installed map[string]string) string {
	for _, name := range slices.Sorted(maps.Keys(v)) {
		version, known := installed[name]
		if !known {
			continue
		}
		for part := range strings.SplitSeq(v[name], ",") {
			m := bound.FindStringSubmatch(strings.TrimSpace(part))
			if m != nil && !within(CompareVersions(version, m[2]), m[1]) {
				return name + " " + version
			}
		}
	}
	return ""
}

func within(order int, operator string) bool {
	switch operator {
	case ">=":
		return order >= 0
	case "<=":
		return order <= 0
	case "<":
		return order < 0
	case ">":
		return order > 0
	case "!=":
		return order != 0
	}
	return order == 0
}

// CompareVersions compares the leading numbers of two versions; what follows
// them, such as rc1 or +cu124, does not count.
func CompareVersions(a, b string) int {
	x, y := release(a), release(b)
	for i := range max(len(x), len(y)) {
		var m, n int
		if i < len(x) {
			m = x[i]
		}
		if i < len(y) {
			n = y[i]
		}
		if order := cmp.Compare(m, n); order != 0 {
			return order
		}
	}
	return 0
}

// release is the numbers of a version: 2.9.0rc1+cu128 is 2, 9, 0.
func release(version string) []int {
	version, _, _ = strings.Cut(version, "+")
	var numbers []int
	for part := range strings.SplitSeq(version, ".") {
		digits := len(part) - len(strings.TrimLeft(part, "0123456789"))
		n, err := strconv.Atoi(part[:digits])
		if err != nil {
			break
		}
		numbers = append(numbers, n)
		if digits < len(part) {
			break
		}
	}
	return numbers
}
