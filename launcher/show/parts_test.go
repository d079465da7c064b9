package show

import (
	"bytes"
	"strings"
	"testing"

	"github.com/gpurun/gpurun/launcher"
	"github.com/gpurun/gpurun/strategy"
)

// TestStepInMoreAndMoreParts: a step that runs out again and again has few lines.
func TestStepInMoreAndMoreParts(t *testing.T) {
	var out bytes.Buffer
	p := people(&out, false)
	again := func(step, parts int) {
		one := strategy.InPlace{Rank: 0, Remedy: strategy.RemedySplit, Phase: "backward", Step: step, Parts: parts, Times: 1, Requested: 1 << 20}
		show(p, launcher.InPlace{InPlace: one, More: 1})
	}
	for parts := 2; parts <= 2048; parts *= 2 {
		again(0, parts)
	}
	again(7, 4)
	var shown []string
	for line := range strings.Lines(out.String()) {
		_, with, _ := strings.Cut(line, "repeated in ")
		shown = append(shown, strings.Fields(with)[0])
	}
	if got := strings.Join(shown, " "); got != "2 32 512" {
		t.Errorf("lines with %s parts", got)
	}
}
