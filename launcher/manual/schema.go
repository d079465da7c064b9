package manual

import (
	"encoding/json"
	"fmt"
	"io"

	"github.com/BurntSushi/toml"

	"github.com/gpurun/gpurun/launcher/job"
	"github.com/gpurun/gpurun/recipes"
)

// object is a JSON object; its keys are written in order of their names.
type object = map[string]any

// SchemaID names the schema; it is where its page is, too.
const SchemaID = "https://github.com/gpurun/gpurun/blob/main/docs/train.schema.json"

// WriteSchema writes the JSON Schema of a train.toml, of draft 7, which editors know. What
// it refuses gpurun refuses, too; gpurun also looks at what a schema cannot see, such as
// whether the script is there.
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
		"$schema": "http://json-schema.org/draft-07/schema#", "$id": SchemaID,
		"title": "train.toml", "description": "a training job that gpurun runs",
		"type": "object", "required": []string{"job"}, "additionalProperties": false, "properties": tables,
	}, "", "  ")
	if err != nil {
		return fmt.Errorf("write the schema: %w", err)
	}
	_, err = w.Write(append(text, '\n'))
	return err
}

// relate adds what holds between keys.
func relate(tables object) {
	var commands []object
	for _, name := range job.Sections[0].OneOf { // of another table your configuration may say it
		commands = append(commands, object{"required": []string{name}})
	}
	of := func(table string) object { return tables[table].(object) }
	of("job")["oneOf"] = commands
	of("job")["dependencies"] = object{"command": object{"not": object{"required": []string{"args"}}}}
	of("notify")["properties"].(object)["command"].(object)["minItems"] = 1
	of("resume")["dependencies"] = object{"latest": []string{"args"}, "args": []string{"latest"}, "data": []string{"latest"}}
}

// The texts that a duration and a size can be; one of 0 bytes means nothing.
const (
	durationPattern = `^\+?(0|(([0-9]+(\.[0-9]*)?|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h))+)$`
	sizePattern     = `^\s*([0-9]+(\.[0-9]*)?|\.[0-9]+)\s*([kKmMgGtT][iI]?)?[bB]\s*$`
)

// keySchema is what a key's value may be.
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
	default:
		return nil, fmt.Errorf("%s: the schema does not know the form %q", k.Name, k.Form)
	}
	schema["description"] = k.About
	if k.Default != "" {
		var value struct{ V any }
		if _, err := toml.Decode("V = "+k.Default, &value); err != nil {
			return nil, fmt.Errorf("the default of %s: %w", k.Name, err)
		}
		schema["default"] = value.V
	}
	return schema, nil
}

// anyOf is one of some words; nil where there are none.
func anyOf(words []string) object {
	if words == nil {
		return nil
	}
	return object{"enum": words}
}

// either is the one or the other, which may be nil.
func either(one, other object) object {
	if other == nil {
		return one
	}
	return object{"anyOf": []object{one, other}}
}

// knobSchemas are the entries of [knobs]: a place, or several. What a place can say is
// judged by gpurun; an editor knows the keys.
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
	knobs["gradient_accumulation_steps"].(object)["anyOf"] = []object{place, {"type": "array", "minItems": 1, "items": place}, {"const": "derived"}}
	return knobs
}
