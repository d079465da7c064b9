package show

import (
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/gpurun/gpurun/launcher"
)

const (
	amber = .80 // from this share of the allowed memory on
	red   = .92
)

// A linePart is one piece of the line.
type linePart struct {
	text   string
	behind string // the separator from the part before
	colour string // of the text; empty for none
	worth  int    // parts of more worth are taken first
}

const dot = " · "

// StatusLine is a status in at most columns characters. With colour, memory is green, amber or red
// by the share of its peak in the allowed memory.
func StatusLine(s launcher.Status, columns int, colour bool) string {
	parts := fitting(parts(s), columns)
	var line strings.Builder
	for i, p := range parts {
		if i > 0 {
			line.WriteString(p.behind)
		}
		if colour && p.colour != "" {
			fmt.Fprintf(&line, "\x1b[%sm%s\x1b[0m", p.colour, p.text)
			continue
		}
		line.WriteString(p.text)
	}
	return line.String()
}

// fitting are the parts that fit, in their order; the most important ones are taken first.
// Where not even the first of them fits, it is cut.
func fitting(parts []linePart, columns int) (found []linePart) {
	order := make([]int, len(parts))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return parts[b].worth - parts[a].worth })
	taken := make([]bool, len(parts))
	for _, i := range order {
		taken[i] = true
		taken[i] = width(parts, taken) <= columns
	}
	if first := parts[order[0]]; !taken[order[0]] {
		first.text = string([]rune(first.text)[:max(columns, 0)])
		return []linePart{first}
	}
	for i, p := range parts {
		if taken[i] {
			found = append(found, p)
		}
	}
	return found
}

// width is the number of characters of the taken parts.
func width(parts []linePart, taken []bool) (n int) {
	for i, p := range parts {
		if taken[i] && n > 0 {
			n += utf8.RuneCountInString(p.behind)
		}
		if taken[i] {
			n += utf8.RuneCountInString(p.text)
		}
	}
	return n
}

// parts are all parts of the line, in order.
func parts(s launcher.Status) []linePart {
	all := []linePart{{text: fmt.Sprintf("attempt %d", s.Attempt), worth: 9}}
	if s.MaxAttempts > s.Attempt { // attempts that were stopped from outside do not count
		all = append(all, linePart{text: fmt.Sprintf(" (%s of at most %d)", ordinal(s.Attempt+1), s.MaxAttempts), worth: -1})
	}
	all = append(all, linePart{text: steps(s), behind: dot, worth: 10})
	if s.Loss != nil {
		all = append(all, linePart{text: fmt.Sprintf("loss %.4g", *s.Loss), behind: dot})
	}
	if speed := rate(s.Rate); speed != "" {
		all = append(all, linePart{text: speed, behind: dot, worth: 5})
	}
	if m := s.Memory; m != nil {
		all = append(all, memoryParts(*m, len(s.Ranks) > 1)...)
	}
	if s.InPlace > 0 {
		all = append(all, linePart{text: fmt.Sprintf("%d in place", s.InPlace), behind: dot, worth: 4})
	}
	all = append(all, linePart{text: short(s.Seconds.Duration()), behind: dot, worth: 3})
	if s.ETA != nil && s.Outcome == "" {
		all = append(all, linePart{text: "~" + short(s.ETA.Duration()) + " left", behind: dot, worth: 7})
	}
	return all
}

// ordinal returns "first", "second", "third", "4th".
func ordinal(n int) string {
	if words := []string{"first", "second", "third"}; n >= 1 && n <= len(words) {
		return words[n-1]
	}
	switch {
	case n%100/10 == 1:
		return fmt.Sprintf("%dth", n)
	case n%10 >= 1 && n%10 <= 3:
		return fmt.Sprintf("%d%s", n, []string{"st", "nd", "rd"}[n%10-1])
	}
	return fmt.Sprintf("%dth", n)
}

// memoryParts are those of the memory, with the rank where there are several.
func memoryParts(m launcher.StatusMemory, several bool) []linePart {
	colour := level(m)
	all := []linePart{{text: label(m) + " " + sizes(m), behind: dot, colour: colour, worth: 8}}
	if m.Peak > 0 {
		all = append(all, linePart{text: "(peak " + figure(m.Peak, largest(m)) + ")", behind: " ", colour: colour, worth: 4})
	}
	if several {
		all = append(all, linePart{text: fmt.Sprintf("rank %d", m.Rank), behind: " ", colour: colour})
	}
	if bar := bar(share(m)); bar != "" {
		all = append(all, linePart{text: bar, behind: " ", colour: colour, worth: 1})
	}
	if m.Retries > 0 {
		noun := "retries"
		if m.Retries == 1 {
			noun = "retry"
		}
		all = append(all, linePart{text: fmt.Sprintf("%d %s", m.Retries, noun), behind: dot, colour: "33", worth: 6})
	}
	return all
}

func steps(s launcher.Status) string {
	switch {
	case s.Step == 0:
		return "no step yet"
	case s.Total > 0:
		return fmt.Sprintf("step %d/%d", s.Step, s.Total)
	}
	return fmt.Sprintf("step %d", s.Step)
}

// Rates beyond these, in steps a second, are errors in a status.json.
const (
	slowest = 1e-6
	fastest = 1e9
)

// rate is the number of steps in a second, or the time of a step that takes longer; empty where
// that is not known.
func rate(r float64) string {
	if !(r >= slowest && r <= fastest) {
		return ""
	}
	if r < 1 {
		return fmt.Sprintf("%.1f s/it", 1/r)
	}
	return fmt.Sprintf("%.1f it/s", r)
}

func label(m launcher.StatusMemory) string {
	if m.Device == "cpu" {
		return "CPU"
	}
	return "GPU"
}

// share is the part of the allowed memory that was needed so far, 0 where that is not known.
func share(m launcher.StatusMemory) float64 {
	if m.Allowed <= 0 {
		return 0
	}
	return float64(max(m.Peak, m.Used)) / float64(m.Allowed)
}

// level is the colour of a share.
func level(m launcher.StatusMemory) string {
	switch s := share(m); {
	case s <= 0:
		return ""
	case s < amber:
		return "32"
	case s < red:
		return "33"
	}
	return "31"
}

// sizes are the used and the allowed memory, if that is known, in the unit of the largest.
func sizes(m launcher.StatusMemory) string {
	text := figure(m.Used, largest(m))
	if m.Allowed > 0 {
		text += "/" + figure(m.Allowed, largest(m))
	}
	if largest(m) >= gib {
		return text + " GiB"
	}
	return text + " MiB"
}

func largest(m launcher.StatusMemory) int64 { return max(m.Used, m.Peak, m.Allowed) }

const mib, gib = 1 << 20, 1 << 30

// figure is a size in the unit that fits another.
func figure(bytes, beside int64) string {
	if beside < gib {
		return fmt.Sprintf("%.0f", float64(bytes)/mib)
	}
	if bytes < 10*gib {
		return fmt.Sprintf("%.1f", float64(bytes)/gib)
	}
	return fmt.Sprintf("%.0f", float64(bytes)/gib)
}

// cells is how many characters a full bar has.
const cells = 4

// bar draws a share in eighths of a character.
func bar(share float64) string {
	eighths := int(min(max(share, 0), 1)*8*cells + .5)
	text := strings.Repeat("█", eighths/8)
	if rest := eighths % 8; rest > 0 {
		text += string([]rune("▏▎▍▌▋▊▉")[rest-1])
	}
	return text
}

// short is a duration in its one or two largest units.
func short(d time.Duration) string {
	s := int64(d.Round(time.Second) / time.Second)
	switch {
	case s < 60:
		return fmt.Sprintf("%ds", max(s, 0))
	case s < 3600:
		return fmt.Sprintf("%dm", s/60)
	case s < 86400:
		return fmt.Sprintf("%dh%02dm", s/3600, s/60%60)
	}
	return fmt.Sprintf("%dd%02dh", s/86400, s/3600%24)
}
