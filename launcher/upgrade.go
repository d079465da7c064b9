package launcher

import (
	"bytes"
	"encoding/json"
	"fmt"
	"time"
)

// upgradeV1 turns the event of a version-1 line into one of version 2. Version 1
// had durations in nanoseconds, under keys that do not say so.
func upgradeV1(kind string, event json.RawMessage) (json.RawMessage, error) {
	decoder := json.NewDecoder(bytes.NewReader(event))
	decoder.UseNumber() // bytes are exact
	var fields map[string]any
	if err := decoder.Decode(&fields); err != nil {
		return nil, fmt.Errorf("read it: %w", err)
	}
	switch kind {
	case "began":
		inSeconds(within(fields, "policy"), "restart_from_zero")
	case "decided":
		inSeconds(within(fields, "decision"), "after")
	case "ended":
		facts, _ := within(fields, "evidence")["facts"].([]any)
		for _, fact := range facts {
			if fact, ok := fact.(map[string]any); ok {
				upgradeFactV1(fact)
			}
		}
	}
	upgraded, err := json.Marshal(fields)
	if err != nil {
		return nil, fmt.Errorf("write it: %w", err)
	}
	return upgraded, nil
}

// within is the object under a key, nil where there is none.
func within(fields map[string]any, key string) map[string]any {
	inner, _ := fields[key].(map[string]any)
	return inner
}

// inSeconds replaces a number of nanoseconds by one of seconds, under the key that
// says so.
func inSeconds(fields map[string]any, key string) {
	number, ok := fields[key].(json.Number)
	if !ok {
		return
	}
	if n, err := number.Float64(); err == nil {
		delete(fields, key)
		fields[key+"_seconds"] = n / float64(time.Second)
	}
}
