package edit_test

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"reflect"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/txtar"

	"github.com/gpurun/gpurun/recipes/edit"
	"github.com/gpurun/gpurun/test/testenv"
)

// scalar reads a value as the test files write it: 8, 1.5, true, null, or a text.
func scalar(text string) any {
	if n, err := strconv.ParseInt(text, 10, 64); err == nil {
		return n
	}
	if x, err := strconv.ParseFloat(text, 64); err == nil {
		return x
	}
	switch text {
	case "true", "false":
		return text == "true"
	case "null":
		return nil
	}
	return strings.Trim(text, `"`)
}

// TestSet runs the cases of testdata/set, each of which is a file "NAME: set PATH = VALUE", followed
// by "new" or "error". With `set-for-good` the old value cannot be restored exactly: it gets other
// quotes, or hides a merged one. In all of them <CR> is a carriage return, <BOM> the byte order
// mark, and <EOF> the end of a file without a line end. With -update, the results are written.
func TestSet(t *testing.T) {
	for _, format := range []edit.Format{edit.JSON, edit.YAML, edit.TOML} {
		file := "testdata/set/" + strings.ToLower(string(format)) + ".txtar"
		archive, err := txtar.ParseFile(file)
		testenv.Check(t, err)
		for i := 0; i+1 < len(archive.Files); i += 2 {
			old, result := archive.Files[i], &archive.Files[i+1]
			t.Run(string(format)+"/"+old.Name, func(t *testing.T) { testSet(t, format, old, result) })
		}
		if *update {
			testenv.Check(t, os.WriteFile(file, txtar.Format(archive), 0o644))
		}
	}
}

var update = flag.Bool("update", false, "write the results into testdata/set")

func testSet(t *testing.T, format edit.Format, file txtar.File, result *txtar.File) {
	_, command, _ := strings.Cut(file.Name, ": ")
	verb, command, _ := strings.Cut(command, " ")
	at, word, found := strings.Cut(command, " = ")
	if !found {
		t.Fatalf("no command in %q", file.Name)
	}
	old := unmask(file.Data)
	got, err := edit.Set(format, old, at, scalar(word))
	if *update {
		result.Name, result.Data = "new", mask(got)
		if err != nil {
			result.Name, result.Data = "error", []byte(err.Error()+"\n")
		}
		return
	}
	if result.Name == "error" {
		wantError(t, err, strings.TrimSpace(string(result.Data)))
		return
	}
	testenv.Check(t, err)
	if diff := cmp.Diff(string(unmask(result.Data)), string(got)); diff != "" {
		t.Fatalf("changed text (-want +got):\n%s", diff)
	}
	if verb == "set" {
		roundTrip(t, format, old, got, at)
	}
}

// roundTrip sets the old value again, which gives the old bytes.
func roundTrip(t *testing.T, format edit.Format, old, got []byte, at string) {
	t.Helper()
	value, there, err := edit.Get(format, old, at)
	testenv.Check(t, err)
	switch value.(type) {
	case nil, map[string]any, []any:
		return // null can be written as nothing
	}
	if !there {
		return
	}
	back, err := edit.Set(format, got, at, value)
	if err != nil {
		t.Fatalf("set the old value back: %v", err)
	}
	if diff := cmp.Diff(string(old), string(back)); diff != "" {
		t.Errorf("after setting the old value back (-want +got):\n%s", diff)
	}
}

func unmask(text []byte) []byte {
	s := strings.NewReplacer("<CR>", "\r", "<BOM>", "\ufeff", "<EOF>\n", "").Replace(string(text))
	return []byte(s)
}

func mask(text []byte) []byte {
	s := strings.NewReplacer("\r", "<CR>", "\ufeff", "<BOM>").Replace(string(text))
	if !strings.HasSuffix(s, "\n") {
		s += "<EOF>\n"
	}
	return []byte(s)
}

func wantError(t *testing.T, err error, want string) {
	t.Helper()
	var e *edit.Error
	if !errors.As(err, &e) {
		t.Fatalf("error %v, want an *edit.Error", err)
	}
	if got := e.Error(); got != want {
		t.Errorf("error\n%s\nwant\n%s", got, want)
	}
}

func TestSetKeepsEqualValues(t *testing.T) {
	for format, text := range map[edit.Format]string{
		edit.JSON: "{\"a\" :  8 , }\r\n",
		edit.YAML: "a:   0x8 # eight\r\n",
		edit.TOML: "a   =  0b1000 # eight\r\n",
	} {
		got, err := edit.Set(format, []byte(text), "a", 8)
		if err != nil || string(got) != text {
			t.Errorf("%s: %q, %v; want %q", format, got, err, text)
		}
	}
}

func TestGet(t *testing.T) {
	tests := []struct {
		format   edit.Format
		text, at string
		want     any
		found    bool
	}{
		{edit.JSON, `{"a": {"b": [1, 2.5]}}`, "a.b.1", 2.5, true},
		{edit.JSON, `{"a.b": true}`, `a\.b`, true, true},
		{edit.JSON, `{"a": null}`, "a.b", nil, false},
		{edit.JSON, `{"n": 9007199254740993}`, "n", int64(9007199254740993), true},
		{edit.YAML, "base: &b {lr: 1}\nrun:\n  <<: *b\n  n: 2\n", "run.lr", int64(1), true},
		{edit.YAML, "base: &b {lr: 1}\nrun:\n  <<: *b\n  lr: 2\n", "run.lr", int64(2), true},
		{edit.YAML, "a: 1e-5\nb: 'x'\nc:\n", "c", nil, true},
		{edit.YAML, "on: yes\n", "on", "yes", true},
		{edit.TOML, "[[g]]\nlr = 1\n[[g]]\nlr = 2\n", "g.1.lr", int64(2), true},
		{edit.TOML, "a.b.c = 'x'\n", "a.b.c", "x", true},
		{edit.TOML, "a = { b = [ { c = 1 } ] }\n", "a.b.0.c", int64(1), true},
	}
	for _, test := range tests {
		got, found, err := edit.Get(test.format, []byte(test.text), test.at)
		if err != nil || found != test.found || !reflect.DeepEqual(got, test.want) {
			t.Errorf("%s %q: %q = %v (%T), %v, %v; want %v", test.format, test.text, test.at, got, got, found, err, test.want)
		}
	}
}

func TestGetErrors(t *testing.T) {
	tests := []struct{ name, text, at, want string }{
		{"a.json", "{\n  \"a\": 1,\n  \"a\": 2\n}", "a", "3:3: a: the key occurs twice"},
		{"a.yaml", "x: 1\na:\n  b: 1\n  b: 2\n", "a.b", "4:3: a.b: the key occurs twice"},
		{"a.toml", "[a]\nb = 1\nb = 2\n", "a.b", "3:1: is not TOML: key b is already defined"},
		{"a.json", "{\"a\": 1", "a", "1:8: is not JSON: parsing object after value: unexpected EOF"},
		{"a.yaml", "a: [1\nb: 2\n", "a", "1:1: is not YAML: did not find expected ',' or ']'"},
		{"a.yaml", "a: 1\n---\na: 2\n", "a", "2:1: a second document starts here, so that a path is ambiguous"},
		{"a.yaml", "a: &x\n  b: *x\n", "a", "is not YAML: anchor 'x' value contains itself"},
		{"a.toml", "a = \n", "a", "1:5: is not TOML: incomplete number"},
		{"a.json", `{"a": 5}`, "a.b", `a: holds 5, so that there is no "b" in it`},
		{"a.json", `{"a": [5]}`, "a.1", "a.1: index 1 of a list of 1"},
		{"a.json", `{"a": [5]}`, "a.x", `a.x: "x" is not an index of a list`},
		{"a.json", "\xff", "a", "is not UTF-8"},
	}
	for _, test := range tests {
		format, _ := edit.FormatOf(test.name, nil)
		_, _, err := edit.Get(format, []byte(test.text), test.at)
		t.Run(test.at+" in "+test.text, func(t *testing.T) { wantError(t, err, test.want) })
	}
}

// TestDuplicateKeyElsewhereIsAllowed: PyYAML takes the last of two, and a job that starts with
// such a file is read with it. Only the requested key must be unique.
func TestDuplicateKeyElsewhereIsAllowed(t *testing.T) {
	text := []byte("x: 1\na:\n  b: 1\n  b: 2\n  c: 3\n")
	for at, want := range map[string]any{"x": 1, "a.c": 3} {
		if got, there, err := edit.Get(edit.YAML, text, at); err != nil || !there || fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("%s: %v, %v, %v", at, got, there, err)
		}
	}
	if got, _, err := edit.Get(edit.YAML, text, "a.b"); err == nil {
		t.Errorf("a key that occurs twice is %v", got)
	}
	if got, err := edit.Set(edit.YAML, text, "x", 2); err != nil || string(got) != strings.Replace(string(text), "x: 1", "x: 2", 1) {
		t.Errorf("%q, %v", got, err)
	}
}

func TestFormatOf(t *testing.T) {
	for name, want := range map[string]edit.Format{
		"ds.json": edit.JSON, "a/b.YAML": edit.YAML, "c.yml": edit.YAML, "d.toml": edit.TOML, "e": edit.JSON, "f.cfg": edit.JSON,
	} {
		if got, known := edit.FormatOf(name, []byte("\ufeff {}")); got != want || !known {
			t.Errorf("FormatOf(%q) = %q, %v; want %q", name, got, known, want)
		}
	}
	if got, known := edit.FormatOf("train.sh", []byte("#!/bin/sh")); known {
		t.Errorf("FormatOf(train.sh) = %q", got)
	}
}

// A list of texts replaces a list, also one over lines.
func TestSetList(t *testing.T) {
	for _, c := range []struct {
		format         edit.Format
		text, at, want string
	}{
		{edit.TOML, "[job]\nargs = [\n  \"--bs\", # samples\n  \"8\",\n]\nname = \"x\" # y\n", "job.args", "[job]\nargs = [\"--bs\", \"4\"]\nname = \"x\" # y\n"},
		{edit.TOML, "a.b = [] # none\n", "a.b", "a.b = [\"--bs\", \"4\"] # none\n"},
		{edit.JSON, "{\"a\": [1, 2]} // c\n", "a", "{\"a\": [\"--bs\", \"4\"]} // c\n"},
		{edit.TOML, "[job]\nargs = \"x\"\n", "job.args", "[job]\nargs = [\"--bs\", \"4\"]\n"},
	} {
		got, err := edit.Set(c.format, []byte(c.text), c.at, []string{"--bs", "4"})
		if err != nil || string(got) != c.want {
			t.Errorf("%q: %q, %v; want %q", c.text, got, err, c.want)
		}
	}
	for _, text := range []string{"[a.b]\nc = 1\n", "[[a.b]]\nc = 1\n"} {
		if got, err := edit.Set(edit.TOML, []byte(text), "a.b", []string{"x"}); err == nil {
			t.Errorf("%q: %q", text, got)
		}
	}
}
