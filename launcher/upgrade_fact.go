package launcher

import (
	"encoding/json"
	"time"

	"github.com/gpurun/gpurun/strategy/cause"
)

// upgradeFactV1 turns a fact of a journal of version 1, as decoded JSON, into one of
// version 2, in place. Numbers may be float64 or json.Number. What is not known is left
// as it is.
//
// Version 1 called a finding a sighting, and weighed it by five truth values; it called
// an observed setting a proof; and the longest step was in nanoseconds.
func upgradeFactV1(fact map[string]any) {
	rename(fact, "sighting", "finding")
	rename(fact, "proof", "observed")
	if finding, ok := fact["finding"].(map[string]any); ok {
		upgradeFindingV1(finding)
	}
	if progress, ok := fact["progress"].(map[string]any); ok {
		rename(progress, "longest", "longest_seconds")
		if nanoseconds, ok := number(progress["longest_seconds"]); ok {
			progress["longest_seconds"] = nanoseconds / float64(time.Second)
		}
	}
}

// upgradeFindingV1 joins the five truth values to one weight; "raised" stays. What the
// words tell beside the cause, which version 1 read from the text each time, is noted.
func upgradeFindingV1(finding map[string]any) {
	is := func(key string) bool {
		set, _ := finding[key].(bool)
		delete(finding, key)
		return set
	}
	symptom, weak, handled, wentOn := is("symptom"), is("weak"), is("handled"), is("went_on")
	weight := cause.WeightCause
	switch {
	case weak:
		weight = cause.WeightWarning
	case symptom:
		weight = cause.WeightSymptom
	}
	switch {
	case handled:
		weight = weight.Handled()
	case wentOn:
		weight = weight.Outlived()
	}
	finding["weight"] = weight.String()
	code, _ := finding["code"].(string)
	text, _ := finding["text"].(string)
	var remarks []any
	for _, r := range cause.Remarks(cause.Code(code), text) {
		remarks = append(remarks, string(r))
	}
	if remarks != nil {
		finding["remarks"] = remarks
	}
}

func rename(object map[string]any, from, to string) {
	if v, ok := object[from]; ok {
		object[to] = v
		delete(object, from)
	}
}

// number is a JSON number as a float64, whichever way it was decoded.
func number(v any) (float64, bool) {
	switch v := v.(type) {
	case float64:
		return v, true
	case json.Number:
		n, err := v.Float64()
		return n, err == nil
	}
	return 0, false
}
