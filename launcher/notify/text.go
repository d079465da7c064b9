package notify

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// textType is the content type of the text format. It has no more than what follows, so that a library for
// it, with Protocol Buffers below, would be a tenth of gpurun.
const textType = "text/plain; version=0.0.4; charset=utf-8"

var escapeLabel = strings.NewReplacer(`\`, `\\`, "\n", `\n`, `"`, `\"`)

// text returns the metrics in Prometheus' text format: families, labels and samples in their order.
func (m *Exporter) text() []byte {
	samples := map[*family][]string{}
	m.collect(func(f *family, value float64, labels ...string) {
		pairs := make([]string, len(labels))
		for i, label := range labels {
			pairs[i] = f.labels[i] + `="` + escapeLabel.Replace(label) + `"`
		}
		slices.Sort(pairs)
		line := f.name + "{" + strings.Join(pairs, ",") + "} " + strconv.FormatFloat(value, 'g', -1, 64) + "\n"
		samples[f] = append(samples[f], line)
	})
	var b bytes.Buffer
	byName := func(a, b *family) int { return cmp.Compare(a.name, b.name) }
	for _, f := range slices.SortedStableFunc(slices.Values(families), byName) {
		if lines := samples[f]; lines != nil {
			slices.Sort(lines)
			fmt.Fprintf(&b, "# HELP %s %s\n# TYPE %s %s\n%s", f.name, f.help, f.name, f.kind, strings.Join(lines, ""))
		}
	}
	return b.Bytes()
}
