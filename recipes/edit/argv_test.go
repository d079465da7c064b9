package edit_test

import (
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/gpurun/gpurun/recipes/edit"
	"github.com/gpurun/gpurun/test/testenv"
)

func words(line string) []string { return strings.Fields(line) }

func TestArgvSet(t *testing.T) {
	tests := []struct{ grammar, line, name, value, want string }{
		{"", "x.py --bs 8 --lr 1", "--bs", "4", "x.py --bs 4 --lr 1"},
		{"", "x.py --bs=8", "--bs", "4", "x.py --bs=4"},
		{"", "x.py", "--bs", "4", "x.py --bs 4"},
		{"", "x.py data -- more", "--bs", "4", "x.py data --bs 4 -- more"},
		{"", "x.py --bs 8 --bs 16", "--bs", "4", "x.py --bs 8 --bs 4"},
		{"", "x.py -- --bs 8", "--bs", "4", "x.py --bs 4 -- --bs 8"},
		{"", "x.py -b8", "-b", "4", "x.py -b4"},
		{"", "x.py -b=8", "-b", "4", "x.py -b=4"},
		{"", "x.py --a_b 8", "--a-b", "4", "x.py --a_b 8 --a-b 4"},
		{"dashes", "x.py --a_b 8", "--a-b", "4", "x.py --a_b 4"},
		{"", "x.py --bs -1", "--bs", "4", "x.py --bs 4"},
		{"", "--bs 8", "--bs", "4", "--bs 8 --bs 4"},
	}
	for _, test := range tests {
		argv := edit.Argv{Dashes: test.grammar == "dashes"}
		before := words(test.line)
		got := argv.Set(before, test.name, test.value)
		if strings.Join(got, " ") != test.want {
			t.Errorf("Set(%q, %s, %s) = %q, want %q", test.line, test.name, test.value, got, test.want)
		}
		if !slices.Equal(before, words(test.line)) {
			t.Errorf("Set(%q) changed its argument", test.line)
		}
	}
}

func TestArgvGet(t *testing.T) {
	tests := []struct {
		line, want string
		found      bool
		fault      string
	}{
		{"x.py --bs 8", "8", true, ""},
		{"x.py --bs 8 --bs=16", "16", true, ""},
		{"x.py --bs=", "", true, ""},
		{"x.py --bsx 8", "", false, ""},
		{"x.py -- --bs 8", "", false, ""},
		{"x.py --bs -0.5", "-0.5", true, ""},
		{"x.py --bs --lr", "", true, "no value follows --bs"},
		{"x.py --bs", "", true, "no value follows --bs"},
	}
	for _, test := range tests {
		got, found, err := edit.Argv{}.Get(words(test.line), "--bs")
		fault := ""
		if err != nil {
			fault = err.Error()
		}
		if got != test.want || found != test.found || fault != test.fault {
			t.Errorf("Get(%q) = %q, %v, %q; want %q, %v, %q", test.line, got, found, fault, test.want, test.found, test.fault)
		}
	}
}

func TestArgvFlag(t *testing.T) {
	tests := []struct {
		line  string
		on    bool
		found bool
	}{
		{"x.py --ac", true, true},
		{"x.py", false, false},
		{"x.py --ac True", true, true},
		{"x.py --ac false", false, true},
		{"x.py --ac=0", false, true},
		{"x.py --ac 0", true, true}, // plain argparse: 0 is something else
		{"x.py --ac --no-ac", false, true},
		{"x.py --no-ac --ac", true, true},
		{"x.py --ac data", true, true},
	}
	for _, test := range tests {
		on, found, err := edit.Argv{}.Flag(words(test.line), "--ac", "--no-ac")
		if err != nil || on != test.on || found != test.found {
			t.Errorf("Flag(%q) = %v, %v, %v; want %v, %v", test.line, on, found, err, test.on, test.found)
		}
	}
	if on, _, err := (edit.Argv{Booleans: true}).Flag(words("x.py --ac 0"), "--ac", ""); on || err != nil {
		t.Errorf("with truth words, --ac 0 = %v, %v", on, err)
	}
	if _, _, err := (edit.Argv{}).Flag(words("x.py --ac=maybe"), "--ac", ""); err == nil {
		t.Error("--ac=maybe is no error")
	}
}

func TestArgvSetFlag(t *testing.T) {
	tests := []struct {
		line, no  string
		on, unset bool
		want      string
	}{
		{"x.py", "", true, false, "x.py --ac"},
		{"x.py --ac y", "", false, false, "x.py y"},
		{"x.py --ac True", "", false, false, "x.py --ac False"},
		{"x.py --ac=1", "", false, false, "x.py --ac=0"},
		{"x.py", "", false, true, "x.py --ac False"},
		{"x.py", "--no-ac", false, true, "x.py --no-ac"},
		{"x.py --no-ac", "--no-ac", true, true, "x.py"},
		{"x.py --ac", "--no-ac", false, true, "x.py --no-ac"},
		{"x.py --ac True --no-ac", "--no-ac", true, false, "x.py --ac"},
		{"x.py --ac", "", true, false, "x.py --ac"},
		{"x.py", "", false, false, "x.py"},
		{"x.py --ac FALSE", "", true, false, "x.py --ac TRUE"},
	}
	for _, test := range tests {
		got, err := edit.Argv{}.SetFlag(words(test.line), "--ac", test.no, test.on, test.unset)
		if err != nil || strings.Join(got, " ") != test.want {
			t.Errorf("SetFlag(%q, no %q, %v, absent %v) = %q, %v; want %q", test.line, test.no, test.on, test.unset, got, err, test.want)
		}
	}
}

func TestOverride(t *testing.T) {
	tests := []struct{ line, key, want string }{
		{"x.py train.batch=8", "train.batch", "x.py train.batch=4"},
		{"x.py +train.batch=8", "train.batch", "x.py +train.batch=4"},
		{"x.py train.batch=8", "+train.batch", "x.py train.batch=4"},
		{"x.py", "+train.batch", "x.py +train.batch=4"},
		{"x.py --batch=8", "--batch", "x.py --batch=4"},
		{"x.py a=1 a=2", "a", "x.py a=1 a=4"},
	}
	for _, test := range tests {
		got := edit.Argv{}.SetOverride(words(test.line), "", test.key, "4")
		if strings.Join(got, " ") != test.want {
			t.Errorf("SetOverride(%q, %q) = %q, want %q", test.line, test.key, got, test.want)
		}
		if value, found := (edit.Argv{}).Override(got, test.key); value != "4" || !found {
			t.Errorf("Override(%q, %q) = %q, %v", got, test.key, value, found)
		}
	}
}

// TestArgvProperties: the value that was set is read, setting the old value again gives the old
// words, and all other words stay.
func TestArgvProperties(t *testing.T) {
	word := rapid.SampledFrom([]string{"--bs", "--bs=3", "-b", "--lr", "0.1", "--", "data", "True", "--no-ac", "--ac", "8", "-1", "x=y"})
	rapid.Check(t, func(t *rapid.T) {
		argv := append([]string{"x.py"}, rapid.SliceOfN(word, 0, 8).Draw(t, "argv")...)
		value := rapid.StringMatching(`[1-9][0-9]{0,3}`).Draw(t, "value")
		grammar := edit.Argv{Dashes: rapid.Bool().Draw(t, "dashes"), Booleans: rapid.Bool().Draw(t, "booleans")}
		next := grammar.Set(argv, "--bs", value)
		if got, found, err := grammar.Get(next, "--bs"); got != value || !found || err != nil {
			t.Fatalf("Get(Set(%q, %q)) = %q, %v, %v from %q", argv, value, got, found, err, next)
		}
		old, found, err := grammar.Get(argv, "--bs")
		if err == nil && found {
			if back := grammar.Set(next, "--bs", old); !slices.Equal(back, argv) {
				t.Fatalf("Set back: %q, want %q", back, argv)
			}
		}
		on, absent := rapid.Bool().Draw(t, "on"), rapid.Bool().Draw(t, "absent")
		flagged, err := grammar.SetFlag(argv, "--ac", "--no-ac", on, absent)
		testenv.Check(t, err)
		got, found, err := grammar.Flag(flagged, "--ac", "--no-ac")
		if !found {
			got = absent
		}
		if err != nil || got != on {
			t.Fatalf("Flag(SetFlag(%q, %v, absent %v)) = %v, %v from %q", argv, on, absent, got, err, flagged)
		}
	})
}

// TestAppend: the position of a new word in the command.
func TestAppend(t *testing.T) {
	for _, test := range []struct {
		name, line string
		change     func([]string) []string
		want       string
	}{
		{"one word", "x.py --a=1", func(w []string) []string { return edit.Argv{Equals: true}.Set(w, "--b", "2") }, "x.py --a=1 --b=2"},
		{"one word, given as two", "x.py --b 1", func(w []string) []string { return edit.Argv{Equals: true}.Set(w, "--b", "2") }, "x.py --b 2"},
		{"before what stays last", "x.py ac:full", func(w []string) []string { return edit.Argv{Last: []string{"ac:"}}.Set(w, "--b", "2") }, "x.py --b 2 ac:full"},
		{"in a group", "x.py --opts a=1 b=2 --c d", func(w []string) []string { return edit.Argv{}.SetOverride(w, "--opts", "e", "3") }, "x.py --opts a=1 b=2 e=3 --c d"},
		{"a new group", "x.py c.py", func(w []string) []string { return edit.Argv{}.SetOverride(w, "--opts", "e", "3") }, "x.py c.py --opts e=3"},
		{"of a group", "x.py --opts a=1 b=2", func(w []string) []string { return edit.Argv{}.SetOverride(w, "--opts", "a", "3") }, "x.py --opts a=3 b=2"},
		{"taken away", "x.py a=1 +a=2 b=3", func(w []string) []string { return edit.Argv{}.RemoveOverride(w, "a") }, "x.py b=3"},
		{"a beginning", "x.py ac:none --b 1", func(w []string) []string { return edit.SetBeginning(w, "ac:", "full") }, "x.py ac:full --b 1"},
		{"a beginning at the end", "x.py --b 1", func(w []string) []string { return edit.SetBeginning(w, "ac:", "full") }, "x.py --b 1 ac:full"},
	} {
		before := strings.Fields(test.line)
		if got := strings.Join(test.change(before), " "); got != test.want {
			t.Errorf("%s: %s, want %s", test.name, got, test.want)
		}
		if strings.Join(before, " ") != test.line {
			t.Errorf("%s: the command itself was changed", test.name)
		}
	}
	if rest, found := edit.Beginning(strings.Fields("ac:x ac:none b ac:full"), "ac:"); !found || rest != "full" {
		t.Errorf("%q, %v", rest, found)
	}
}

// TestPairs: overrides of two words come after the options. New options are put before them,
// because nothing after the first pair is read as an option.
func TestPairs(t *testing.T) {
	a := edit.Argv{Pairs: true}
	tests := []struct{ before, key, value, after string }{
		{"x.py --gpus 8", "A.B", "4", "x.py --gpus 8 A.B 4"},
		{"x.py --gpus 8 A.B 2 C 1", "A.B", "4", "x.py --gpus 8 A.B 4 C 1"},
		{"x.py A.B 1 A.B 2", "A.B", "4", "x.py A.B 1 A.B 4"},
		{"x.py --name A.B", "A.B", "4", "x.py --name A.B A.B 4"},
		{"x.py --name A.B C 1", "A.B", "4", "x.py --name A.B C 1 A.B 4"},
	}
	for _, test := range tests {
		got := a.SetOverride(strings.Fields(test.before), "", test.key, test.value)
		if strings.Join(got, " ") != test.after {
			t.Errorf("%s: %q, want %q", test.before, got, test.after)
		}
		if value, found := a.Override(got, test.key); value != test.value || !found {
			t.Errorf("%s: read %q, %v", test.after, value, found)
		}
	}
	if got := strings.Join(a.Append(strings.Fields("x.py --gpus 8 A 1"), "--resume"), " "); got != "x.py --resume --gpus 8 A 1" {
		t.Errorf("an option: %s", got)
	}
	if got := strings.Join(a.RemoveOverride(strings.Fields("x.py A 1 B 2 A 3"), "A"), " "); got != "x.py B 2" {
		t.Errorf("taken away: %s", got)
	}
	if value, found := a.Override(strings.Fields("x.py A.B"), "A.B"); found {
		t.Errorf("a key without a value is %q", value)
	}
}
