package console

import (
	"bytes"
	"encoding/json"
	"strings"

	"github.com/gpurun/gpurun/strategy"
)

// durations are the fields that --json printed in nanoseconds, under these keys,
// before the journal had them in seconds.
var durations = map[string]bool{"after": true, "restart_from_zero": true, "longest": true}

// WithNanoseconds adds to a JSON document, beside each duration in seconds, the
// field that --json has always had for it. A text that is none is left as it is.
func WithNanoseconds(text []byte) []byte {
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber()
	var document any
	if decoder.Decode(&document) != nil || !addNanoseconds(document) {
		return text
	}
	more, err := json.Marshal(document)
	if err != nil {
		return text
	}
	return more
}

// addNanoseconds reports whether there was a duration.
func addNanoseconds(value any) (found bool) {
	switch value := value.(type) {
	case []any:
		for _, element := range value {
			found = addNanoseconds(element) || found
		}
	case map[string]any:
		added := map[string]int64{}
		for key, element := range value {
			found = addNanoseconds(element) || found
			name, ok := strings.CutSuffix(key, "_seconds")
			number, isNumber := element.(json.Number)
			if !ok || !durations[name] || !isNumber {
				continue
			}
			var d strategy.Seconds
			if json.Unmarshal([]byte(number), &d) == nil {
				added[name] = int64(d)
			}
		}
		for name, n := range added {
			value[name], found = n, true
		}
	}
	return found
}
