package manual

import (
	"encoding/json"
	"fmt"
	"io"

	"github.com/pelletier/go-toml/v2"

	"github.com/gpurun/gpurun/launcher/job"
	"github.com/gpurun/gpurun/recipes"
)

// object is a JSON object; its keys are written in order of their names.
type object = map[string]any

// schemaID identifies the schema of a train.toml.
const schemaID = "urn:gpurun:train"

// WriteSchema writes the JSON Schema of a train.toml, in draft 7, which editors support. gpurun refuses
// everything that the schema refuses, and more that a schema cannot check, such as a missing script.
func WriteSchema(w io.Writer) error {
	tables := object{}
	for _, s := range job.Sections {
		table := object{"type": "object", "description": s.About, "additionalProperties": false}
		keys := object{}
		for _, k := range s.Keys {
			schema, err := keySchema(k)
			if err != nil {
				return err
			}
			keys[k.Name] = schema
		}
		if s.Name == "knobs" {
			keys = knobSchemas()
		}
		table["properties"] = keys
		tables[s.Name] = table
	}
	relate(tables)
	text, err := json.MarshalIndent(object{
		"$schema": "http://json-schema.org/draft-07/schema#", "$id": schemaID,
		"title": "train.toml", "description": "a training job that gpurun runs",
		"type": "object", "required": []string{"job"}, "additionalProperties": false, "properties": tables,
	}, "", "  ")
	if err != nil {
		return fmt.Errorf("write the schema: %w", err)
	}
	_, err = w.Write(append(text, '\n'))
	return err
}

// relate adds the rules between keys.
func relate(tables object) {
	var commands []object
	for _, name := range job.Sections[0].OneOf { // for other tables, the user's configuration may have it
		commands = append(commands, object{"required": []string{name}})
	}
	of := func(table string) object { return tables[table].(object) }
	of("job")["oneOf"] = commands
	of("job")["dependencies"] = object{"command": object{"not": object{"required": []string{"args"}}}}
	of("notify")["properties"].(object)["command"].(object)["minItems"] = 1
	of("resume")["dependencies"] = object{"latest": []string{"args"}, "args": []string{"latest"},
		"data": []string{"latest"}}
}

// The patterns of a duration and a size. A size of 0 bytes is not allowed.
const (
	durationPattern = `^\+?(0|(([0-9]+(\.[0-9]*)?|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h))+)$`
	sizePattern     = `^\s*([0-9]+(\.[0-9]*)?|\.[0-9]+)\s*([kKmMgGtT][iI]?)?[bB]\s*$`
)

// keySchema returns the schema of a key's value.
func keySchema(k job.FileKey) (object, error) {
	schema, words := object{}, anyOf(k.Words)
	switch k.Form {
	case job.TextForm, job.PathForm, job.PatternForm:
		schema["type"] = "string"
		if k.Words != nil {
			schema["enum"] = k.Words
		}
	case job.DurationForm:
		schema = either(object{"type": "string", "pattern": durationPattern}, words)
	case job.SizeForm:
		schema = either(object{"type": "string", "pattern": sizePattern}, words)
	case job.NumberForm:
		schema = either(object{"type": "integer", "minimum": k.Least, "maximum": k.Most}, words)
	case job.TruthForm:
		schema = either(object{"type": "boolean"}, words)
	case job.ListForm:
		items := object{"type": "string"}
		if k.Words != nil {
			items["enum"] = k.Words
		}
		schema["type"], schema["items"] = "array", items
	case job.TableForm:
		schema["type"], schema["additionalProperties"] = "object", object{"type": "string"}
		if k.Words != nil { // exit codes
			schema["propertyNames"] = object{"pattern": "^([1-9][0-9]?|1[0-9][0-9]|2[0-4][0-9]|25[0-5])$"}
			schema["additionalProperties"] = object{"enum": k.Words}
		}
	default:
		return nil, fmt.Errorf("%s: the schema does not know the form %q", k.Name, k.Form)
	}
	schema["description"] = k.About
	if k.Default != "" {
		var value struct{ V any }
		if err := toml.Unmarshal([]byte("V = "+k.Default), &value); err != nil {
			return nil, fmt.Errorf("the default of %s: %w", k.Name, err)
		}
		schema["default"] = value.V
	}
	return schema, nil
}

// anyOf returns the schema for one of some words; nil if there are none.
func anyOf(words []string) object {
	if words == nil {
		return nil
	}
	return object{"enum": words}
}

// either returns the schema for one or the other, which may be nil.
func either(one, other object) object {
	if other == nil {
		return one
	}
	return object{"anyOf": []object{one, other}}
}

// knobSchemas returns the schemas of the entries of [knobs]: one place or several. The schema has only the
// keys of a place; gpurun checks the values.
func knobSchemas() object {
	keys := object{}
	for _, name := range recipes.KnobKeys() {
		keys[name] = object{}
	}
	place := object{"type": "object", "properties": keys, "additionalProperties": false}
	knobs := object{}
	for _, name := range job.KnobNames() {
		knobs[name] = object{"anyOf": []object{place, {"type": "array", "minItems": 1, "items": place}}}
	}
	knobs["gradient_accumulation_steps"].(object)["anyOf"] = []object{place,
		{"type": "array", "minItems": 1, "items": place}, {"const": "derived"}}
	return knobs
}
