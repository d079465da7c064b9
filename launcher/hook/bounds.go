package hook

import (
	"maps"
	"reflect"
	"slices"
	"strings"
)

// Bounds for reading a process's files: a job can write anything into them.
const (
	longestText    = 300  // bytes of a reason, a class or a name
	mostItems      = 64   // of a list or a map
	mostNumbers    = 1024 // of a list
	mostDimensions = 16   // of a tensor
	mostProblems   = 8    // of the hook itself
	mostName       = 200  // bytes of the name of a program
	mostNumber     = 1e15 // of parameters and bytes
	mostSeconds    = 1e9
)

// bound keeps all that a pointer leads to within the bounds.
func bound(pointer any) { boundValue(reflect.ValueOf(pointer)) }

func boundValue(v reflect.Value) {
	switch v.Kind() {
	case reflect.Pointer:
		if !v.IsNil() {
			boundValue(v.Elem())
		}
	case reflect.Struct:
		for i := range v.NumField() {
			boundValue(v.Field(i))
		}
	case reflect.Slice:
		most := mostItems
		if v.Type().Elem().Kind() == reflect.Int64 {
			most = mostNumbers
		}
		v.SetLen(min(v.Len(), most))
		for i := range v.Len() {
			boundValue(v.Index(i))
		}
	case reflect.Map:
		v.Set(reflect.ValueOf(bytesByType(v.Interface().(map[string]int64))))
	case reflect.String:
		v.SetString(cut(v.String()))
	case reflect.Int, reflect.Int64:
		v.SetInt(min(max(v.Int(), 0), mostNumber))
	case reflect.Float64:
		v.SetFloat(min(max(v.Float(), 0), mostSeconds))
	}
}

// bytesByType are the bytes of parameters by the name of their type.
func bytesByType(of map[string]int64) map[string]int64 {
	var safe map[string]int64
	for _, dtype := range slices.Sorted(maps.Keys(of)) {
		if len(safe) == mostItems || of[dtype] < 0 {
			break
		}
		if safe == nil {
			safe = map[string]int64{}
		}
		safe[cut(dtype)] = min(of[dtype], mostNumber)
	}
	return safe
}

// cut returns a text's beginning, without half a character at its end.
func cut(s string) string {
	return strings.ToValidUTF8(s[:min(len(s), longestText)], "")
}
