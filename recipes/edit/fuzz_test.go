package edit_test

import (
	"bytes"
	"errors"
	"reflect"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/gpurun/gpurun/recipes/edit"
)

// checkSet compares one change with the promises of Set, for any text.
func checkSet(t *testing.T, format edit.Format, text []byte, at string, value any) {
	before := bytes.Clone(text)
	next, err := edit.Set(format, text, at, value)
	if !bytes.Equal(before, text) {
		t.Fatal("Set changed its argument")
	}
	if err != nil {
		var e *edit.Error
		if !errors.As(err, &e) {
			t.Fatalf("%v is no *edit.Error", err)
		}
		return
	}
	got, found, err := edit.Get(format, next, at)
	if err != nil || !found || !reflect.DeepEqual(got, value) {
		t.Fatalf("Set %q = %v in %q gives %q, read as %v, %v, %v", at, value, text, next, got, found, err)
	}
	if again, err := edit.Set(format, next, at, value); err != nil || !bytes.Equal(again, next) {
		t.Fatalf("set again: %q, %v; want %q", again, err, next)
	}
	old, there, err := edit.Get(format, text, at)
	if err != nil {
		t.Fatalf("the old text was read once: %v", err)
	}
	if n, whole := old.(int64); there && whole {
		sameBytes(t, format, text, next, at, n)
	}
}

// sameBytes: setting a whole number again gives the old bytes, except its spelling (0x8) and a
// value that a merge key supplied.
func sameBytes(t *testing.T, format edit.Format, text, next []byte, at string, old int64) {
	back, err := edit.Set(format, next, at, old)
	if err != nil {
		t.Fatalf("set back: %v", err)
	}
	if len(back) == len(text) && !bytes.Equal(back, text) && !bytes.Contains(text, []byte("<<")) && !bytes.ContainsAny(text, "+-xob_") {
		t.Fatalf("%q, set to something else and back, is %q", text, back)
	}
}

func fuzz(f *testing.F, format edit.Format, seeds ...string) {
	for _, seed := range seeds {
		f.Add([]byte(seed), "a.b", int64(4), "x")
		f.Add([]byte(strings.ReplaceAll(seed, "\n", "\r\n")), "a", int64(-1), "yes")
	}
	f.Fuzz(func(t *testing.T, text []byte, at string, number int64, word string) {
		if len(text) > 1<<12 || len(at) > 64 {
			return
		}
		checkSet(t, format, text, at, number)
		checkSet(t, format, text, at, strings.ToValidUTF8(word, ""))
		checkSet(t, format, text, at, number%2 == 0)
		checkSet(t, format, text, at, float64(number)/8)
	})
}

func FuzzJSON(f *testing.F) {
	fuzz(f, edit.JSON, "{}", `{"a": {"b": 8}}`, "{\n  \"a\": {\n    // c\n    \"b\": 8, /* d */\n  },\n}\n", `{"a":[{"b":1}],"c":null}`, "\ufeff{\"a\":{}}", `[1]`, `{"a": {"x":1}} // end`)
}

func FuzzYAML(f *testing.F) {
	fuzz(f, edit.YAML, "", "a:\n  b: 8 # c\n", "a: {b: 8, c: 'x'}\n", "a: &x\n  b: 1\nc: *x\n", "a:\n- b: 1\n", "a: |\n  text\nb: 1", "a: >-\n  b\n", "? a\n: b\n", "a:\n", "{\"a\": {\"b\": 1}}", "<<: {a: {b: 1}}\n", "a: \"x\\\"y\"\n", "---\na: 1\n...\n")
}

func FuzzTOML(f *testing.F) {
	fuzz(f, edit.TOML, "", "[a]\nb = 8 # c\n", "a.b = 8\n", "a = { b = 8, c = [1, { d = 2 }] }\n", "[[a]]\nb = 1\n[[a]]\n", "[a.x]\ny = 1\n", "a = '''x'''\n", "t = 1979-05-27T07:32:00Z\n[a]\n", "\"a\".'b' = 1.5\n")
}

// TestSetInGeneratedText builds texts from lines of all kinds, which the fuzz targets reach only
// in long runs.
func TestSetInGeneratedText(t *testing.T) {
	lines := map[edit.Format][]string{
		edit.YAML: {"a:", "  b: 8", "  c: 'x' # y", "  d: {e: 1, f: [1, 2]}", "  g:", "    h: \"q\"", "  i: |", "    text", "    # no comment", "j: 1.5", "# comment", "", "k:", "- l: 1", "- m", "n: null", "o: &p 1", "q: *p"},
		edit.TOML: {"a.b = 8", "c = 'x' # y", "d = { e = 1, f = [1, 2] }", "[g]", "  h = \"q\"", "[i.j]", "k = 1", "[[l]]", "m = 1", "# comment", "", "[a]", "n = 1.5", "o = [", " 1,", "]"},
		edit.JSON: {"{", "}", "\"a\": {", "\"b\": 8,", "\"c\": \"x\", // y", "  \"d\": [1, {\"e\": 2}],", "},", "/* comment */", "\"f\": null,", "\"g\": {}", "\"h\": 1.5"},
	}
	paths := []string{"a", "a.b", "a.d.e", "a.g.h", "a.new", "new", "new.deep.er", "j", "k.0.l", "k.0.new", "d.f.1", "g.h", "g.new", "i.j.k", "i.new", "l.0.m", "l.0.new", "d.new", "n", "o", "q", "a.f", "f", "f.new"}
	rapid.Check(t, func(rt *rapid.T) {
		format := rapid.SampledFrom([]edit.Format{edit.JSON, edit.YAML, edit.TOML}).Draw(rt, "format")
		chosen := rapid.SliceOfN(rapid.SampledFrom(lines[format]), 0, 14).Draw(rt, "lines")
		end := rapid.SampledFrom([]string{"\n", "\r\n"}).Draw(rt, "line end")
		text := strings.Join(chosen, end)
		if format == edit.JSON {
			text = "{" + end + text + end + "}"
		}
		if rapid.Bool().Draw(rt, "ends with a line end") {
			text += end
		}
		value := rapid.SampledFrom([]any{int64(4), "word", "two words", "no", true, 0.25}).Draw(rt, "value")
		at := rapid.SampledFrom(paths).Draw(rt, "path")
		checkSet(t, format, []byte(text), at, value)
		_, err := edit.Set(format, []byte(text), at, value)
		if err != nil && strings.Contains(err.Error(), "without changing others") && !strings.Contains(text, "|") {
			t.Fatalf("%s of\n%s\ncannot be set: %v", at, text, err)
		}
	})
}
