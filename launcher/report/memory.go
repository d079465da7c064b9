package report

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/gpurun/gpurun/model"
	"github.com/gpurun/gpurun/strategy"
)

// A memoryChart is the memory of one rank and device over the time of an attempt.
type memoryChart struct {
	Chart   *chart
	N, Rank int
	Who     string
	// Peak is the most that was allocated in any sample, Reserved and Used likewise, Allowed
	// the last of its kind; 0: not known.
	Peak, Reserved, Used, Allowed int64
	Retries                       int64
	Slice                         string // the time that one point covers
}

// A point is a slice of time: the most of each figure in it, and the last phase.
type point struct {
	at                              time.Time
	allocated, peak, reserved, used int64
	phase                           string
}

// memoryCharts are those of an attempt, the failing rank's first, with at most so many
// points each; left says which ranks have none.
func (d *Data) memoryCharts(a *ReportedAttempt, points int) (charts []memoryChart, left string) {
	series := slices.Clone(a.Series)
	slices.SortStableFunc(series, func(x, y Series) int {
		first := func(s Series) int {
			if a.Diagnosis.Fatal && s.Rank == a.Diagnosis.Rank {
				return 0
			}
			return 1
		}
		return cmp.Compare(first(x), first(y))
	})
	n := 0
	for _, s := range series {
		c, known := d.memoryChart(a, s, points)
		if !known {
			continue
		}
		if n++; n <= mostRanks {
			charts = append(charts, c)
		}
	}
	if n > mostRanks {
		left = fmt.Sprintf("%s more are in %s.", strategy.Count(n-mostRanks, "rank"), model.SamplesFile)
	}
	return charts, left
}

// memoryChart draws one; false: no sample has a figure.
func (d *Data) memoryChart(a *ReportedAttempt, s Series, points int) (memoryChart, bool) {
	c := memoryChart{N: a.N, Rank: s.Rank, Who: fmt.Sprintf("rank %d", s.Rank)}
	if s.Device != "" {
		c.Who += ", " + d.say.clip(s.Device, shortText)
	}
	for _, one := range s.Samples {
		c.Peak, c.Reserved, c.Used = max(c.Peak, one.Peak, one.Allocated), max(c.Reserved, one.Reserved), max(c.Used, one.Used)
		c.Allowed, c.Retries = cmp.Or(one.Allowed, c.Allowed), max(c.Retries, one.Retries)
	}
	if max(c.Peak, c.Reserved, c.Used) == 0 {
		return c, false
	}
	c.Chart = newChart("Memory over time of " + c.Who)
	begin, end := a.Begin(), a.end()
	last := s.Samples[len(s.Samples)-1].Time
	if begin.IsZero() || s.Samples[0].Time.Before(begin) {
		begin = s.Samples[0].Time
	}
	if end.Before(last) {
		end = last
	}
	span := max(end.Sub(begin), time.Millisecond)
	across := func(t time.Time) float64 { return float64(t.Sub(begin)) / float64(span) }
	most := max(c.Peak, c.Reserved, c.Used)
	if c.Allowed < 3*most { // a higher limit would flatten the rest
		most = max(most, c.Allowed)
	}
	top := float64(most) * 1.12
	decimated := decimate(s.Samples, begin, span, points)
	c.Slice = brief(span / time.Duration(max(points, 1)))
	c.draw(decimated, across, top)
	c.Chart.bytes(top)
	c.Chart.axis(0, span.Seconds(), clockSteps, func(v float64) string { return brief(time.Duration(v * float64(time.Second))) })
	if at := a.failedAt(); !at.IsZero() && (a.Diagnosis.Rank == s.Rank || slices.Contains(a.Diagnosis.Ranks, s.Rank)) {
		words := "failed"
		if a.Diagnosis.OutOfMemory() {
			words = "out of memory"
		}
		if a.Diagnosis.Phase != "" && a.Diagnosis.Phase != "unknown" {
			words += ", " + string(a.Diagnosis.Phase)
		}
		c.Chart.mark(across(at), d.say.clip(words, shortText))
	}
	return c, true
}

// bytes puts ticks on the axis down, from nothing to top.
func (c *chart) bytes(top float64) {
	unit, name := float64(1<<30), "GiB"
	if top < unit {
		unit, name = 1<<20, "MiB"
	}
	c.scale(0, top, unit, func(v float64) string {
		if v == 0 {
			return ""
		}
		return number(v/unit) + " " + name
	})
}

// clockSteps are the steps of an axis of time, in seconds.
var clockSteps = []float64{.1, .2, .5, 1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1200, 1800, 3600, 7200, 14400, 28800, 43200, 86400, 172800, 604800}

// decimate makes at most so many points of samples: the most in each slice of time.
func decimate(samples []model.Sample, begin time.Time, span time.Duration, most int) []point {
	var points []point
	slot := -1
	for _, s := range samples {
		if at := int(float64(s.Time.Sub(begin)) / float64(span) * float64(most)); at != slot || len(points) == 0 {
			slot = at
			points = append(points, point{at: s.Time})
		}
		p := &points[len(points)-1]
		p.allocated, p.reserved, p.used = max(p.allocated, s.Allocated), max(p.reserved, s.Reserved), max(p.used, s.Used)
		p.peak = max(p.peak, s.Peak)
		p.phase = cmp.Or(s.Phase, p.phase)
	}
	return points
}

// draw draws the phases, the figures that are known, and what is allowed.
func (c *memoryChart) draw(points []point, across func(time.Time) float64, top float64) {
	for i := 0; i < len(points); {
		j := i
		for j < len(points) && points[j].phase == points[i].phase {
			j++
		}
		to := 1.
		if j < len(points) {
			to = across(points[j].at)
		}
		from := part(across(points[i].at))
		if phase := points[i].phase; slices.Contains(phases, phase) {
			c.Chart.Bands = append(c.Chart.Bands, band{phase, int(from * 1000), max(int((part(to)-from)*1000), 2)})
		}
		i = j
	}
	for _, l := range []struct {
		class string
		of    func(point) int64
	}{
		{"used", func(p point) int64 { return p.used }},
		{"reserved", func(p point) int64 { return p.reserved }},
		{"peak", func(p point) int64 { return p.peak }},
		{"allocated", func(p point) int64 { return p.allocated }},
	} {
		var dots []dot
		for _, p := range points {
			if v := l.of(p); v > 0 {
				dots = append(dots, dot{across(p.at), float64(v) / top})
			}
		}
		c.Chart.add(l.class, dots)
	}
	if y := float64(c.Allowed) / top; c.Allowed > 0 && y <= 1 {
		c.Chart.add("allowed", []dot{{0, y}, {1, y}})
	}
}

// phases are the phases with a background colour, which has the same name.
var phases = []string{"load", "eval", "save"}

// A legend says what a colour means.
type legend struct{ Class, Name string }

// legendOf explains the bands and marks that charts have.
func legendOf(charts []memoryChart) (all []legend) {
	shown := map[string]bool{}
	for _, c := range charts {
		for _, b := range c.Chart.Bands {
			shown[b.Class] = true
		}
		shown["mark"] = shown["mark"] || len(c.Chart.Marks) > 0
	}
	for _, l := range []legend{{"load", "loading"}, {"eval", "evaluation"}, {"save", "saving"}, {"mark", "failure"}} {
		if shown[l.Class] {
			all = append(all, l)
		}
	}
	return all
}
