package cluster

import (
	"fmt"
	"math/bits"
	"strconv"
	"strings"
)

const (
	// maxHosts bounds an expanded list; Slurm stops at 64 Ki names a range.
	maxHosts = 1 << 16
	// maxName is the longest host name that DNS allows (RFC 1035 §2.3.4).
	maxName = 255
)

// Hosts expands a Slurm host list: "n[1-3,07],login" is n1 n2 n3 n07 login.
// Order and duplicates are kept. The words by which Slurm says that it has no
// list give none. Nothing is allocated before it has been counted, since the text
// may come from anywhere.
func Hosts(list string) ([]string, error) {
	if list == "(null)" || list == "None assigned" {
		return nil, nil
	}
	items, err := splitItems(list)
	if err != nil {
		return nil, fmt.Errorf("host list %q: %w", list, err)
	}
	var parsed []item
	total := 0
	for _, text := range items {
		it, err := parseItem(text)
		if err != nil {
			return nil, fmt.Errorf("host list %q: %w", list, err)
		}
		if total += it.count; total > maxHosts {
			return nil, fmt.Errorf("host list %q: more than %d names", list, maxHosts)
		}
		parsed = append(parsed, it)
	}
	hosts := make([]string, 0, total)
	for _, it := range parsed {
		hosts = it.expand(hosts, "", it.parts)
	}
	return hosts, nil
}

// splitItems cuts a list at commas and blanks, except within brackets.
func splitItems(list string) ([]string, error) {
	var items []string
	start, inside := 0, false
	for i := 0; i <= len(list); i++ {
		switch {
		case i == len(list) && inside:
			return nil, fmt.Errorf("missing ]")
		case i == len(list), !inside && strings.IndexByte(", \t\n", list[i]) >= 0:
			if i > start {
				items = append(items, list[start:i])
			}
			start = i + 1
		case list[i] == '[':
			inside = true
		case list[i] == ']':
			inside = false
		}
	}
	return items, nil
}

// item is one name, or the product of its brackets.
type item struct {
	parts []part
	count int
}

// part is literal text and the bracket that follows it, if any.
type part struct {
	literal string
	spans   []span
}

// span is a range of numbers, written with at least width digits.
type span struct {
	low, high uint64
	width     int
}

func parseItem(text string) (item, error) {
	it := item{count: 1}
	longest := 0
	for text != "" {
		literal, rest, bracket := strings.Cut(text, "[")
		p := part{literal: literal}
		longest += len(literal)
		if bracket {
			inner, after, _ := strings.Cut(rest, "]") // splitItems has seen the ]
			count, width := 0, 0
			for word := range strings.SplitSeq(inner, ",") {
				s, err := parseSpan(word)
				if err != nil {
					return item{}, err
				}
				p.spans = append(p.spans, s)
				count += int(s.high-s.low) + 1
				width = max(width, s.width, decimalDigits(s.high))
			}
			high, product := bits.Mul(uint(it.count), uint(count))
			if high > 0 || product > maxHosts {
				return item{}, fmt.Errorf("more than %d names", maxHosts)
			}
			it.count = int(product)
			longest += width
			rest = after
		}
		it.parts = append(it.parts, p)
		text = rest
	}
	if longest > maxName {
		return item{}, fmt.Errorf("a name of %d bytes", longest)
	}
	return it, nil
}

// parseSpan reads "7", "08-11" or "1-". The low end sets the number of digits.
func parseSpan(word string) (span, error) {
	first, last, isRange := strings.Cut(word, "-")
	invalid := fmt.Errorf("invalid range %q", word)
	low, ok := parseDigits(first)
	if !ok {
		return span{}, invalid
	}
	high := low
	if isRange && last != "" {
		if high, ok = parseDigits(last); !ok || high < low {
			return span{}, invalid
		}
	}
	if high-low >= maxHosts {
		return span{}, fmt.Errorf("more than %d names in %q", maxHosts, word)
	}
	return span{low, high, len(first)}, nil
}

func parseDigits(s string) (uint64, bool) {
	n, err := strconv.ParseUint(s, 10, 64)
	return n, err == nil
}

func decimalDigits(n uint64) int { return len(strconv.FormatUint(n, 10)) }

// expand appends the names of the parts, the leftmost bracket varying slowest.
func (it item) expand(hosts []string, name string, parts []part) []string {
	if len(parts) == 0 {
		return append(hosts, name)
	}
	name += parts[0].literal
	if parts[0].spans == nil {
		return it.expand(hosts, name, parts[1:])
	}
	for _, s := range parts[0].spans {
		for k := uint64(0); k <= s.high-s.low; k++ {
			number := fmt.Sprintf("%0*d", s.width, s.low+k)
			hosts = it.expand(hosts, name+number, parts[1:])
		}
	}
	return hosts
}
