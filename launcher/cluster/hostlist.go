package cluster

import (
	"errors"
	"fmt"
	"github.com/gpurun/gpurun/launcher/lazy"
	"strconv"
	"strings"
)

const (
	// maxHosts bounds an expanded list; Slurm stops at 64 Ki names a range.
	maxHosts = 1 << 16
	// maxName is the longest host name that DNS allows (RFC 1035 §2.3.4).
	maxName = 255
)

// listItem matches one name of a host list: commas and blanks separate names outside brackets.
var listItem = lazy.Regexp(`(?:\[[^\]]*\]?|[^, \t\n\[])+`)

// Hosts expands a Slurm host list: "n[1-3,07],login" is n1 n2 n3 n07 login. Order and duplicates
// are kept. Slurm's words for "no list" give no names.
func Hosts(list string) (hosts []string, err error) {
	if list == "(null)" || list == "None assigned" {
		return nil, nil
	}
	for _, item := range listItem().FindAllString(list, -1) {
		if hosts, err = expand(hosts, "", item); err != nil {
			return nil, fmt.Errorf("host list %q: %w", list, err)
		}
	}
	return hosts, nil
}

// expand appends the names that start with prefix and end with each expansion of rest. The
// leftmost bracket varies slowest.
func expand(hosts []string, prefix, rest string) ([]string, error) {
	literal, rest, bracket := strings.Cut(rest, "[")
	prefix += literal
	switch {
	case len(prefix) > maxName:
		return nil, fmt.Errorf("a name of %d bytes", len(prefix))
	case !bracket && len(hosts) == maxHosts:
		return nil, fmt.Errorf("more than %d names", maxHosts)
	case !bracket:
		return append(hosts, prefix), nil
	}
	ranges, rest, closed := strings.Cut(rest, "]")
	if !closed {
		return nil, errors.New("missing ]")
	}
	for text := range strings.SplitSeq(ranges, ",") {
		low, high, width, err := parseRange(text)
		for n := low; err == nil && n-low <= high-low; n++ {
			hosts, err = expand(hosts, fmt.Sprintf("%s%0*d", prefix, width, n), rest)
		}
		if err != nil {
			return nil, err
		}
	}
	return hosts, nil
}

// parseRange reads "7", "08-11" or "1-". The low end sets the number of digits.
func parseRange(text string) (low, high uint64, width int, err error) {
	first, last, _ := strings.Cut(text, "-")
	low, err = strconv.ParseUint(first, 10, 64)
	if high = low; err == nil && last != "" {
		high, err = strconv.ParseUint(last, 10, 64)
	}
	switch {
	case err != nil || high < low:
		err = fmt.Errorf("invalid range %q", text)
	case high-low >= maxHosts:
		err = fmt.Errorf("more than %d names in %q", maxHosts, text)
	}
	return low, high, len(first), err
}
