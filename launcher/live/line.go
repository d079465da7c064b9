package live

import (
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/gpurun/gpurun/launcher"
)

const (
	amber = .80 // from this share of what is allowed on
	red   = .92
)

// A part is one piece of the line. What is worth more has its place first.
type part struct {
	text   string
	behind string // what stands between it and the part before
	colour string // of the text; empty for none
	worth  int
}

const dot = " · "

// Line says a status in at most columns characters, which no terminal breaks. With colour,
// memory is green, amber or red by how near its peak is to what is allowed.
func Line(s launcher.Status, columns int, colour bool) string {
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

// fitting are the parts that have room, in their order. Where not even the first has it, it
// is cut.
func fitting(parts []part, columns int) []part {
	order := make([]int, len(parts))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int { return parts[b].worth - parts[a].worth })
	var taken []int
	for n, i := range order {
		p := parts[i]
		with := slices.Sorted(slices.Values(append(slices.Clone(taken), i)))
		switch {
		case width(parts, with) <= columns:
			taken = with
		case n == 0:
			p.text = string([]rune(p.text)[:max(columns, 0)])
			return []part{p}
		}
	}
	var found []part
	for _, i := range taken {
		found = append(found, parts[i])
	}
	return found
}

// width is how many characters some of the parts have.
func width(parts []part, of []int) int {
	n := 0
	for k, i := range of {
		n += utf8.RuneCountInString(parts[i].text)
		if k > 0 {
			n += utf8.RuneCountInString(parts[i].behind)
		}
	}
	return n
}

// parts are all that the line may say, in its order.
func parts(s launcher.Status) []part {
	all := []part{{text: fmt.Sprintf("attempt %d", s.Attempt), worth: 9}}
	if s.MaxAttempts > 0 {
		all = append(all, part{text: fmt.Sprintf("/%d", s.MaxAttempts), worth: 2})
	}
	all = append(all, part{text: steps(s), behind: dot, worth: 10})
	if s.Loss != nil {
		all = append(all, part{text: fmt.Sprintf("loss %.4g", *s.Loss), behind: dot})
	}
	if speed := rate(s.Rate); speed != "" {
		all = append(all, part{text: speed, behind: dot, worth: 5})
	}
	if m := s.Memory; m != nil {
		all = append(all, memoryParts(*m, len(s.Ranks) > 1)...)
	}
	all = append(all, part{text: short(s.Seconds.Duration()), behind: dot, worth: 3})
	if s.ETA != nil && s.Outcome == "" {
		all = append(all, part{text: "~" + short(s.ETA.Duration()) + " left", behind: dot, worth: 7})
	}
	return all
}

// memoryParts say whose memory it is where there are several ranks.
func memoryParts(m launcher.StatusMemory, several bool) []part {
	colour := level(m)
	all := []part{{text: label(m) + " " + sizes(m), behind: dot, colour: colour, worth: 8}}
	if m.Peak > 0 {
		all = append(all, part{text: "(peak " + figure(m.Peak, largest(m)) + ")", behind: " ", colour: colour, worth: 4})
	}
	if several {
		all = append(all, part{text: fmt.Sprintf("rank %d", m.Rank), behind: " ", colour: colour})
	}
	if bar := bar(share(m)); bar != "" {
		all = append(all, part{text: bar, behind: " ", colour: colour, worth: 1})
	}
	if m.Retries > 0 {
		noun := "retries"
		if m.Retries == 1 {
			noun = "retry"
		}
		all = append(all, part{text: fmt.Sprintf("%d %s", m.Retries, noun), behind: dot, colour: "33", worth: 6})
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

// Rates beyond these, in steps a second, are no training's: a status.json can say anything.
const (
	slowest = 1e-6
	fastest = 1e9
)

// rate is how fast steps come, or where they take longer than a second how long one takes;
// empty where that is not known.
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

// share is how much of what is allowed was needed so far, 0 where that is not known.
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

// sizes are what is used and what is allowed, if that is known, in the unit of the largest.
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
		return fmt.Sprint(bytes / mib)
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
