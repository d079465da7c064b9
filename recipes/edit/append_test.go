package edit_test

import (
	"strings"
	"testing"

	"github.com/gpurun/gpurun/recipes/edit"
)

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
