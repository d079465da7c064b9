package report

import (
	"strconv"
	"testing"
)

// Neighbouring ticks have different texts, however small the range of the axis is.
func TestTicksHaveDifferentTexts(t *testing.T) {
	whole := func(v float64) string { return strconv.Itoa(int(v)) }
	tenths := func(v float64) string { return strconv.FormatFloat(v, 'f', 1, 64) }
	for _, test := range []struct {
		low, top float64
		text     func(float64) string
	}{
		{2, 3, whole}, {0, 2, whole}, {2.01, 2.04, tenths}, {1.9, 2.3, tenths}, {0, 1000, whole}, {7, 9, whole},
	} {
		var c chart
		c.scale(test.low, test.top, 1, test.text)
		c.axis(test.low, test.top, nil, test.text)
		for _, ticks := range [][]tick{c.Grid, c.Below} {
			for i := 1; i < len(ticks); i++ {
				if ticks[i].Text != "" && ticks[i].Text == ticks[i-1].Text {
					t.Errorf("%v to %v: %+v", test.low, test.top, ticks)
				}
			}
		}
		if test.top-test.low >= 2 && len(c.Below) < 2 {
			t.Errorf("%v to %v: %d ticks", test.low, test.top, len(c.Below))
		}
	}
}
