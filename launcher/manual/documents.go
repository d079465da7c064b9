package manual

import (
	"encoding"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/gpurun/gpurun/launcher/errext"
)

// A Document is what a verb prints with --json. Its schema follows from the Go types.
type Document struct {
	Verb  string // "plan", "recipes detect"; "error" for an error of any verb
	Title string
	// Types are values of the types of which the document is one.
	Types []any
	Lines bool // one on each line
	// Events are the types of the events that lines may have, by kind; nil: none.
	Events map[string]reflect.Type
}

// journalLine is the version of the lines that have events.
const journalLine = 2

// lines are the lines that have events.
func (d Document) lines() (all []any) {
	for _, kind := range slices.Sorted(maps.Keys(d.Events)) {
		all = append(all, Tagged{Fields: map[string]any{
			"v": Const{journalLine}, "kind": Const{kind}, "time": time.Time{}, "event": reflect.Zero(d.Events[kind]).Interface(),
		}})
	}
	return all
}

// Texts is an object of texts.
func Texts(names ...string) Tagged {
	fields := map[string]any{}
	for _, name := range names {
		fields[name] = ""
	}
	return Tagged{Fields: fields}
}

// A Tagged is an object with fields that say what it is: an event of a run.
type Tagged struct {
	Fields map[string]any // a value of a type, or a Const
	Of     any            // a struct whose fields are added; nil for none
}

// A Const is a value that never differs.
type Const struct{ Value any }

// Documents have the schemas of all verbs.
type Documents struct {
	All []Document
	// Spelled are the schemas of types that write their JSON themselves, As the types of what others write.
	Spelled map[reflect.Type]map[string]any
	As      map[reflect.Type]any
}

// Name is the name of a document's schema.
func (d Document) Name() string { return strings.ReplaceAll(d.Verb, " ", "-") }

// Write writes the schema of a verb's document, in draft 2020-12. Fields that are not in it may be added later.
func (d Documents) Write(w io.Writer, verb string) error {
	at := slices.IndexFunc(d.All, func(one Document) bool { return one.Verb == verb })
	if at < 0 {
		var verbs []string
		for _, one := range d.All {
			verbs = append(verbs, one.Verb)
		}
		return errext.Errorf("there are "+strings.Join(verbs, ", "), "gpurun %s --json prints no document that has a schema",
			verb)
	}
	of := d.All[at]
	g := generator{Documents: d, definitions: object{}, names: map[reflect.Type]string{}}
	var any []object
	for _, value := range slices.Concat(of.Types, of.lines()) {
		any = append(any, g.value(value))
	}
	schema := object{"$schema": "https://json-schema.org/draft/2020-12/schema", "$id": "urn:gpurun:json:" + of.Name(),
		"title": of.Title, "anyOf": any}
	if of.Lines || of.Events != nil {
		schema["description"] = "each line"
	}
	if g.err != nil {
		return fmt.Errorf("the schema of %s: %w", verb, g.err)
	}
	if len(g.definitions) > 0 {
		schema["$defs"] = g.definitions
	}
	text, err := json.MarshalIndent(schema, "", " ")
	if err != nil {
		return fmt.Errorf("write the schema of %s: %w", verb, err)
	}
	_, err = w.Write(append(text, '\n'))
	return err
}

// A generator makes schemas of types. Structs with a name become definitions.
type generator struct {
	Documents
	definitions object
	names       map[reflect.Type]string
	err         error
}

// value is the schema of a value's type, or of a Tagged or a Const.
func (g *generator) value(v any) object {
	switch v := v.(type) {
	case Const:
		return object{"const": v.Value}
	case Tagged:
		fields, required := object{}, []string{}
		if v.Of != nil {
			required = g.fields(reflect.TypeOf(v.Of), fields)
		}
		for _, name := range slices.Sorted(maps.Keys(v.Fields)) {
			fields[name] = g.value(v.Fields[name])
			required = append(required, name)
		}
		slices.Sort(required)
		return object{"type": "object", "properties": fields, "required": required}
	}
	return g.of(reflect.TypeOf(v), false)
}

// of is the schema of a type. absent: a nil value does not appear.
func (g *generator) of(t reflect.Type, absent bool) object {
	if spelled, special := g.Spelled[t]; special {
		return spelled
	}
	if as, special := g.As[t]; special {
		return g.value(as)
	}
	if t.Kind() == reflect.Pointer {
		return orNull(g.of(t.Elem(), false), absent)
	}
	if t.Implements(reflect.TypeFor[encoding.TextMarshaler]()) && !t.Implements(reflect.TypeFor[json.Marshaler]()) {
		return object{"type": "string"}
	}
	if t.Implements(reflect.TypeFor[json.Marshaler]()) ||
		reflect.PointerTo(t).Implements(reflect.TypeFor[json.Marshaler]()) {
		return g.fail("%v writes its JSON itself", t)
	}
	switch t.Kind() {
	case reflect.Bool:
		return object{"type": "boolean"}
	case reflect.Float32, reflect.Float64:
		return object{"type": "number"}
	case reflect.String:
		return object{"type": "string"}
	case reflect.Slice:
		return orNull(object{"type": "array", "items": g.of(t.Elem(), false)}, absent)
	case reflect.Array:
		return object{"type": "array", "items": g.of(t.Elem(), false), "minItems": t.Len(), "maxItems": t.Len()}
	case reflect.Map:
		return orNull(object{"type": "object", "additionalProperties": g.of(t.Elem(), false)}, absent)
	case reflect.Interface:
		return object{}
	case reflect.Struct:
		return g.structure(t)
	}
	if t.PkgPath() == "time" || !reflect.Zero(t).CanInt() && !reflect.Zero(t).CanUint() {
		return g.fail("%v has no form in JSON", t) // a time.Duration is in nanoseconds there
	}
	return object{"type": "integer"}
}

func (g *generator) fail(format string, args ...any) object {
	if g.err == nil {
		g.err = fmt.Errorf(format, args...)
	}
	return object{}
}

// orNull is a schema that allows null, too, unless a nil value is absent.
func orNull(schema object, absent bool) object {
	if absent {
		return schema
	}
	return object{"anyOf": []object{schema, {"type": "null"}}}
}

// structure is the schema of a struct; one with a name is a reference to its definition.
func (g *generator) structure(t reflect.Type) object {
	if t.Name() == "" {
		return g.body(t)
	}
	name, known := g.names[t]
	if !known {
		name = t.Name()
		if _, taken := g.definitions[name]; taken {
			name = upperFirst(t.PkgPath()[strings.LastIndexByte(t.PkgPath(), '/')+1:]) + name
		}
		g.names[t], g.definitions[name] = name, nil // it may hold itself
		g.definitions[name] = g.body(t)
	}
	return object{"$ref": "#/$defs/" + name}
}

func (g *generator) body(t reflect.Type) object {
	fields := object{}
	required := g.fields(t, fields)
	slices.Sort(required)
	return object{"type": "object", "properties": fields, "required": required}
}

// fields adds the schemas of a struct's fields, those of embedded structs among them, and returns the names of those
// that are always present.
func (g *generator) fields(t reflect.Type, into object) []string {
	required := []string{}
	for i := range t.NumField() {
		f := t.Field(i)
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case name == "-" || !f.IsExported() && !f.Anonymous:
			continue
		case f.Anonymous && name == "":
			required = append(required, g.fields(f.Type, into)...)
			continue
		case name == "":
			name = f.Name
		}
		optional := strings.Contains(options, "omit")
		into[name] = g.of(f.Type, optional)
		required = slices.DeleteFunc(required, func(of string) bool { return of == name }) // of an embedded struct
		if !optional {
			required = append(required, name)
		}
	}
	return required
}
