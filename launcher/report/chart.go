package report

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// The size of a chart's drawing, in its own units across and in pixels down: the browser
// stretches it across, but not its texts.
const (
	across = 1000
	down   = 160
)

// A chart is lines over a common axis.
type chart struct {
	Label  string // for screen readers
	Bands  []band
	Grid   []tick
	Below  []tick
	Lines  []curvePath
	Marks  []chartMark
	Height int // with the axis
}

// A band is a part of the axis across with another background: a phase.
type band struct {
	Class string
	X, W  int
}

// A tick is a place on an axis with its text. At is in pixels down, or in percent across.
type tick struct {
	At     int
	Text   string
	Anchor string
}

// A curvePath is a line of the drawing.
type curvePath struct{ Class, Path string }

// A chartMark marks a time.
type chartMark struct {
	X       int // of across
	Percent string
	Text    string
	Anchor  string
}

func newChart(label string) *chart { return &chart{Label: label, Height: down + 18} }

// A dot is a place in a chart, both in parts of its axis.
type dot struct{ x, y float64 }

// outline draws dots as relative steps, which need the fewest bytes.
func outline(dots []dot) string {
	if len(dots) == 0 {
		return ""
	}
	var b strings.Builder
	x, y := place(dots[0])
	fmt.Fprintf(&b, "M%d %dl", x, y)
	if len(dots) == 1 { // a line has a length
		b.WriteString("1 0")
	}
	for i, d := range dots[1:] {
		nx, ny := place(d)
		if i > 0 && nx >= x {
			b.WriteByte(' ')
		}
		b.WriteString(strconv.Itoa(nx - x))
		if ny >= y {
			b.WriteByte(' ')
		}
		b.WriteString(strconv.Itoa(ny - y))
		x, y = nx, ny
	}
	return b.String()
}

func place(d dot) (x, y int) {
	return int(math.Round(part(d.x) * across)), int(math.Round((1 - part(d.y)) * down))
}

// part is a figure from 0 to 1.
func part(f float64) float64 {
	if math.IsNaN(f) {
		return 0
	}
	return math.Min(math.Max(f, 0), 1)
}

// add draws a line.
func (c *chart) add(class string, dots []dot) {
	if len(dots) > 0 {
		c.Lines = append(c.Lines, curvePath{class, outline(dots)})
	}
}

// mark marks a time.
func (c *chart) mark(x float64, text string) {
	m := chartMark{X: int(part(x) * across), Percent: percent(x), Text: text, Anchor: "start"}
	if x > .5 {
		m.Anchor = "end"
	}
	c.Marks = append(c.Marks, m)
}

func percent(x float64) string { return strconv.FormatFloat(part(x)*100, 'f', 1, 64) + "%" }

// scale puts ticks on the axis down, from low to top, at round figures of a unit.
func (c *chart) scale(low, top, unit float64, text func(float64) string) {
	step := nice((top-low)/4.5/unit) * unit
	if !(step > 0) || math.IsInf(step, 0) {
		return
	}
	step = distinct(low, top, step, text)
	for v := math.Ceil(low/step) * step; v < top && len(c.Grid) < 8; v += step {
		t := tick{At: int((1 - part((v-low)/(top-low))) * down), Text: text(v)}
		if t.At < 14 { // the text is above the line
			t.Text = ""
		}
		c.Grid = append(c.Grid, t)
	}
}

// axis puts ticks on the axis across, from low to top, at nice figures.
func (c *chart) axis(low, top float64, steps []float64, text func(float64) string) {
	if !(top > low) {
		return
	}
	step := nice((top - low) / 4)
	for _, s := range steps { // those of the clock
		if s >= (top-low)/6 {
			step = s
			break
		}
	}
	step = distinct(low, top, step, text)
	for v := math.Ceil(low/step) * step; v <= top && len(c.Below) < 9; v += step {
		t := tick{At: int(part((v-low)/(top-low)) * 100), Text: text(v), Anchor: "middle"}
		switch {
		case t.At < 4:
			t.Anchor = "start"
		case t.At > 94:
			t.Anchor = "end"
		}
		c.Below = append(c.Below, t)
	}
}

// distinct returns a step at which ticks have different texts: the given one, or the next nice one that is
// larger.
func distinct(low, top, step float64, text func(float64) string) float64 {
	for range 100 {
		last, same := "", false
		for v := math.Ceil(low/step) * step; v <= top; v += step {
			t := text(v)
			same = same || t == last
			last = t
		}
		if !same {
			break
		}
		step = nice(step * 1.01)
	}
	return step
}

// nice is a round figure, of 1, 2, 2.5 or 5, at or above another.
func nice(v float64) float64 {
	if !(v > 0) {
		return 0
	}
	power := math.Pow(10, math.Floor(math.Log10(v)))
	for _, m := range []float64{1, 2, 2.5, 5} {
		if m*power >= v {
			return m * power
		}
	}
	return 10 * power
}
