package main

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/gpurun/gpurun/launcher/journal"
	"github.com/gpurun/gpurun/launcher/manual"
	"github.com/gpurun/gpurun/test/testenv"
)

var schemaDir = flag.String("schemas", "", "write the schemas into this folder")

// schemas are those of all documents by verb, made strict: a field that a schema does not have is an error here.
var schemas = sync.OnceValues(func() (map[string]*jsonschema.Schema, error) {
	all := map[string]*jsonschema.Schema{}
	for _, d := range documents.All {
		var text bytes.Buffer
		if err := documents.Write(&text, d.Verb); err != nil {
			return nil, err
		}
		value, err := jsonschema.UnmarshalJSON(&text)
		if err != nil {
			return nil, err
		}
		compiler := jsonschema.NewCompiler()
		compiler.AssertFormat()
		if err := compiler.AddResource(d.Name(), strict(value)); err != nil {
			return nil, err
		}
		if all[d.Verb], err = compiler.Compile(d.Name()); err != nil {
			return nil, err
		}
	}
	return all, nil
})

// strict closes each object of a schema that names its fields.
func strict(schema any) any {
	switch s := schema.(type) {
	case map[string]any:
		for key, value := range s {
			s[key] = strict(value)
		}
		if _, fields := s["properties"].(map[string]any); fields && s["type"] == "object" {
			s["additionalProperties"] = false
		}
	case []any:
		for i := range s {
			s[i] = strict(s[i])
		}
	}
	return schema
}

// validated counts the documents that scripts print.
var validated atomic.Int64

// checkDocument validates a document of a verb, or the error in its place.
func checkDocument(of string, text []byte) error {
	validated.Add(1)
	all, err := schemas()
	if err != nil {
		return err
	}
	value, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		return fmt.Errorf("gpurun %s --json prints %.300s: %w", of, text, err)
	}
	if all[of] == nil {
		return fmt.Errorf("gpurun %s --json has no schema and prints %.300s", of, text)
	}
	if err := all[of].Validate(value); err != nil && all["error"].Validate(value) != nil {
		return fmt.Errorf("gpurun %s --json prints %.300s: %w", of, text, err)
	}
	return nil
}

// checkOutput validates what a command line of gpurun has printed on stdout, if that is JSON.
func checkOutput(args []string, stdout string) error {
	app := newApp(stdio{})
	if !manual.AsksJSON(app, args) || stdout == "" {
		return nil
	}
	words := manual.Arrange(app, args)
	of := words[1]
	if of == "recipes" && slices.Contains(words, "detect") {
		of = "recipes detect"
	}
	if of == "help" {
		return nil
	}
	for line := range strings.Lines(stdout) {
		if err := checkDocument(of, []byte(line)); err != nil {
			return err
		}
	}
	return nil
}

// checkRunDirs validates the journals that the runs of a script have left.
func checkRunDirs(env *testscript.Env) {
	journals, _ := filepath.Glob(filepath.Join(env.WorkDir, ".gpurun", "*", "*", journal.File))
	for _, path := range journals {
		text, err := os.ReadFile(path)
		if _, started := os.Stat(filepath.Join(filepath.Dir(path), "run.json")); err != nil || started != nil {
			continue // a script wrote it
		}
		for line := range strings.Lines(string(text)) {
			if strings.HasSuffix(line, "\n") && json.Valid([]byte(line)) { // else a script has torn it
				if err := checkDocument("run", []byte(line)); err != nil {
					env.T().(interface{ Errorf(string, ...any) }).Errorf("%s: %v", path, err)
				}
			}
		}
	}
}

// Each verb has a schema. With -schemas they are written to files.
func TestEachVerbHasASchema(t *testing.T) {
	names := map[string]bool{}
	for _, d := range documents.All {
		names[d.Name()] = true
		var text bytes.Buffer
		testenv.Check(t, documents.Write(&text, d.Verb))
		if *schemaDir == "" {
			continue
		}
		testenv.Check(t, os.WriteFile(filepath.Join(*schemaDir, d.Name()+".schema.json"), text.Bytes(), 0o644))
	}
	for _, c := range newApp(stdio{}).Commands {
		if c.Name != "help" && !names[c.Name] {
			t.Errorf("gpurun %s --json has no schema", c.Name)
		}
	}
}

// A document that violates its schema is refused: with a field that is missing, of another type, or unknown.
func TestSchemasRefuse(t *testing.T) {
	for name, test := range map[string]struct {
		verb, text string
		want       bool
	}{
		"version":                     {"version", `{"version": "v1", "go": "go1", "nvml": true}`, true},
		"an error":                    {"version", `{"error": "e", "hint": "", "code": 2}`, true},
		"a field is missing":          {"version", `{"version": "v1", "go": "go1"}`, false},
		"a field of another type":     {"version", `{"version": "v1", "go": "go1", "nvml": "yes"}`, false},
		"a field that nobody knows":   {"version", `{"version": "v1", "go": "go1", "nvml": true, "x": 1}`, false},
		"an event":                    {"run", `{"v": 2, "kind": "noticed", "time": "2026-01-01T00:00:00Z", "event": {"text": "x"}}`, true},
		"of an unknown kind":          {"run", `{"v": 2, "kind": "heard", "time": "2026-01-01T00:00:00Z", "event": {"text": "x"}}`, false},
		"of another kind":             {"run", `{"v": 2, "kind": "ended", "time": "2026-01-01T00:00:00Z", "event": {"text": "x"}}`, false},
		"without a time":              {"run", `{"v": 2, "kind": "noticed", "event": {"text": "x"}}`, false},
		"with no time":                {"run", `{"v": 2, "kind": "noticed", "time": "today", "event": {"text": "x"}}`, false},
		"a verdict":                   {"verdict", `{"outcome": "trained", "code": 0, "reason": "", "run": "r", "attempts": []}`, true},
		"a verdict as the last line":  {"run", `{"v": 1, "kind": "verdict", "outcome": "trained", "code": 0, "reason": "", "run": "r", "attempts": []}`, true},
		"a last line of another kind": {"run", `{"v": 1, "kind": "end", "outcome": "trained", "code": 0, "reason": "", "run": "r", "attempts": []}`, false},
		"a code that is no number":    {"verdict", `{"outcome": "trained", "code": "0", "reason": "", "run": "r", "attempts": []}`, false},
		"no JSON":                     {"verdict", `trained`, false},
	} {
		if err := checkDocument(test.verb, []byte(test.text)); (err == nil) != test.want {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A duration in a document is a number of seconds, under a name that says so where it is a setting: in Go it would
// be one of nanoseconds, and has no schema.
func TestDurationsAreSeconds(t *testing.T) {
	d := manual.Documents{All: []manual.Document{{Verb: "x", Types: []any{struct {
		For time.Duration `json:"for"`
	}{}}}}, Spelled: documents.Spelled}
	if err := d.Write(&bytes.Buffer{}, "x"); err == nil {
		t.Error("nanoseconds have a schema")
	}
	var began bytes.Buffer
	testenv.Check(t, documents.Write(&began, "run"))
	var run struct {
		Defs map[string]struct {
			Properties map[string]map[string]any
		} `json:"$defs"`
	}
	testenv.Check(t, json.Unmarshal(began.Bytes(), &run))
	if got := run.Defs["Policy"].Properties["restart_from_zero_seconds"]; !reflect.DeepEqual(got, map[string]any{"type": "number", "description": "seconds"}) {
		t.Errorf("restart_from_zero_seconds is %v", got)
	}
}
