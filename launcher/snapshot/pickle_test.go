package snapshot

import (
	"bytes"
	"encoding/binary"
	"os"
	"os/exec"
	"reflect"
	"strings"
	"testing"
)

// plain gives a decoded value in Go's own types.
func plain(v any) any {
	switch v := v.(type) {
	case *list:
		all := []any{}
		for _, each := range v.items {
			all = append(all, plain(each))
		}
		return all
	case *dict:
		all := map[any]any{}
		for i := range v.keys {
			all[plain(v.keys[i])] = plain(v.values[i])
		}
		return all
	}
	return v
}

// Plain data, as Python writes it by each protocol.
func TestPlainData(t *testing.T) {
	python, err := exec.LookPath("python3")
	if p := os.Getenv("GPURUN_TEST_PYTHON"); p != "" {
		python, err = p, nil
	}
	if err != nil {
		t.Skip("there is no python3 in PATH")
	}
	const program = `
import pickle, struct, sys
shared = [1, "x"]
value = {"none": None, "truth": [True, False], "numbers": [0, 255, 65535, -1, 2**31, -2**31, 2**62, -2**62, 2**63, 1.5], "text": "é" * 300,
  "bytes": b"ab" * 200, "tuples": [(), (1,), (1, 2), (1, 2, 3), (1, 2, 3, 4)], "shared": [shared, shared], "long": list(range(3000)),
  "many": {i: str(i) for i in range(1500)}, "set": {7}, "frozen": frozenset([8])}
for protocol in (2, 3, 4, 5):
    v = dict(value)
    if protocol < 4:
        del v["set"], v["frozen"]  # they are calls there
    if protocol < 3:
        del v["bytes"]  # so are they
    text = pickle.dumps(v, protocol)
    sys.stdout.buffer.write(struct.pack("<I", len(text)) + text)
`
	out, err := exec.Command(python, "-c", program).Output()
	if err != nil {
		t.Fatal(err)
	}
	for protocol := 2; len(out) > 0; protocol++ {
		n := binary.LittleEndian.Uint32(out)
		value, err := decode(calm(t), out[4:4+n])
		out = out[4+n:]
		if err != nil {
			t.Errorf("protocol %d: %v", protocol, err)
			continue
		}
		got := plain(value).(map[any]any)
		shared := []any{int64(1), "x"}
		for key, want := range map[string]any{
			"none": nil, "truth": []any{true, false}, "text": strings.Repeat("é", 300), "shared": []any{shared, shared},
			"numbers": []any{int64(0), int64(255), int64(65535), int64(-1), int64(1 << 31), int64(-1 << 31), int64(1 << 62), int64(-1 << 62), float64(1 << 63), 1.5},
			"tuples":  []any{[]any{}, []any{int64(1)}, []any{int64(1), int64(2)}, []any{int64(1), int64(2), int64(3)}, []any{int64(1), int64(2), int64(3), int64(4)}},
		} {
			if !reflect.DeepEqual(got[key], want) {
				t.Errorf("protocol %d: %s is %v, want %v", protocol, key, got[key], want)
			}
		}
		if long := got["long"].([]any); len(long) != 3000 || long[2999] != int64(2999) {
			t.Errorf("protocol %d: the long list has %d", protocol, len(long))
		}
		if many := got["many"].(map[any]any); len(many) != 1500 || many[int64(1499)] != "1499" {
			t.Errorf("protocol %d: the large dictionary has %d", protocol, len(many))
		}
		if protocol >= 3 && got["bytes"] != strings.Repeat("ab", 200) {
			t.Errorf("protocol %d: bytes are %v", protocol, got["bytes"])
		}
		if protocol >= 4 && !reflect.DeepEqual([]any{got["set"], got["frozen"]}, []any{[]any{int64(7)}, []any{int64(8)}}) {
			t.Errorf("protocol %d: sets are %v %v", protocol, got["set"], got["frozen"])
		}
	}
}

// What would import, call or ask is refused by its name, and nothing else is guessed.
func TestRefusals(t *testing.T) {
	for text, want := range map[string]string{
		"\x80\x02cos\nsystem\nX\x04\x00\x00\x00true\x85R.": "GLOBAL",
		"\x80\x04\x8c\x02os\x8c\x06system\x93.":            "STACK_GLOBAL",
		"\x80\x02NNR.":                                     "REDUCE",
		"\x80\x02NNb.":                                     "BUILD",
		"(ios\nsystem\n.":                                  "INST",
		"(No.":                                             "OBJ",
		"\x80\x02NN\x81.":                                  "NEWOBJ",
		"\x80\x04NNN\x92.":                                 "NEWOBJ_EX",
		"\x80\x02\x82\x01.":                                "EXT1",
		"\x80\x02\x83\x01\x00.":                            "EXT2",
		"\x80\x02\x84\x01\x00\x00\x00.":                    "EXT4",
		"Pabc\n.":                                          "PERSID",
		"\x80\x02NQ.":                                      "BINPERSID",
		"\x80\x05\x97.":                                    "NEXT_BUFFER",
		"I1\n.":                                            "0x49",
		"":                                                 "cut off",
		"\x80\x04":                                         "cut off",
		"\x80\x04X\xff\xff\xff\xff":                        "a text of",
		"\x80\x04\x8d\xff\xff\xff\xff\xff\xff\xff\xff": "a text of",
		"\x80\x04\x8c\x05ab.":                          "cut off",
		"\x80\x09N.":                                   "protocol 9",
		".":                                            "nothing is on the stack",
		"NN.":                                          "left over",
		"(N.":                                          "left over",
		"(.":                                           "where a value is wanted",
		"l.":                                           "no mark",
		"Na.":                                          "nothing is on the stack",
		"NNa.":                                         "what is no list",
		"NNNs.":                                        "what is no dictionary",
		"}(Nu.":                                        "what is no dictionary",
		"(Nd.":                                         "what is no dictionary",
		"h\x00.":                                       "memo entry 0 is not there",
		"Nr\xff\xff\xff\x7f.":                          "out of order",
		"(q\x00.":                                      "out of order",
		strings.Repeat("(", 100):                       "open at once",
	} {
		value, err := decode(calm(t), []byte(text))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q gives %v, %v; want an error with %q", text, value, err, want)
		}
	}
	if _, err := decode(calm(t), make([]byte, mostBytes+1)); err == nil {
		t.Error("a pickle beyond the bound was read")
	}
}

// A short text cannot stand for more than there is room for.
func TestAPickleThatGrows(t *testing.T) {
	// A list, and over and over the same list in a list.
	text := bytes.NewBufferString("\x80\x04]q\x00(")
	for range 1000 {
		text.WriteString("h\x00")
	}
	text.WriteString("e.")
	if _, err := decodeWithin(calm(t), text.Bytes(), 1000); err == nil || !strings.Contains(err.Error(), "values") {
		t.Errorf("it was read: %v", err)
	}
	// A segment with many blocks, many times.
	text = bytes.NewBufferString("\x80\x04}(X\x08\x00\x00\x00segments](}(X\x06\x00\x00\x00blocks](")
	for range 4096 {
		text.WriteString("}")
	}
	text.WriteString("euq\x00")
	for range 4096 {
		text.WriteString("h\x00")
	}
	text.WriteString("eu.")
	if _, err := Analyze(t.Context(), text.Bytes(), nil); err == nil || !strings.Contains(err.Error(), "blocks or entries") {
		t.Errorf("it was read: %v", err)
	}
}

func FuzzAnalyze(f *testing.F) {
	for _, name := range []string{"tiny", "bare-5"} {
		f.Add(text(f, name))
	}
	f.Add([]byte("\x80\x04}X\x08\x00\x00\x00segments]s."))
	f.Fuzz(func(t *testing.T, text []byte) {
		s, err := Analyze(t.Context(), text, measured)
		if err != nil {
			return
		}
		if s.Reserved < 0 || s.Allocated < 0 || s.Free < 0 || s.Largest > s.Free || len(s.Top) > mostTop || len(s.Leaks) > mostLeaks {
			t.Errorf("%+v", s)
		}
		if len(s.Words()) > 5 || strings.Contains(s.Brief(), "\n\n\n\n") {
			t.Errorf("%q", s.Words())
		}
	})
}
