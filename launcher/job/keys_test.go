package job

import (
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/gpurun/gpurun/launcher/commandline"
)

// company is the setting that a key of the table requires, as a line; empty for none.
func company(s Section, key string) string {
	if s.OneOf == nil || slices.Contains(s.OneOf, key) {
		return ""
	}
	return s.OneOf[0] + " = " + Said(s.Name, s.OneOf[0]).Example + "\n"
}

// withKey reads a train.toml that sets one key, and nothing else that need not be.
func withKey(t *testing.T, s Section, key, value string) (*Job, []Fault) {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "train.py"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	text := "[" + s.Name + "]\n" + company(s, key)
	if s.Name != "job" {
		text = "[job]\nscript = \"train.py\"\n" + text
	}
	if key != "" {
		text += key + " = " + value + "\n"
	}
	return parse(filepath.Join(dir, "train.toml"), []byte(text), base{job: defaults(), env: commandline.Environ{}}, nil)
}

// every calls for each key of the table.
func every(do func(s Section, k FileKey)) {
	for _, s := range Sections {
		for _, k := range s.Keys {
			do(s, k)
		}
	}
}

// Each key of the table is read: a value that fits no form is reported at its place.
func TestEveryKeyIsRead(t *testing.T) {
	seen := 0
	every(func(s Section, k FileKey) {
		seen++
		_, faults := withKey(t, s, k.Name, "3.5")
		told := false
		for _, f := range faults {
			told = told || f.Key == s.Name+"."+k.Name && !strings.HasPrefix(f.Message, "unknown") && !strings.HasPrefix(f.Message, "needs")
		}
		if !told {
			t.Errorf("%s.%s = 3.5: %v", s.Name, k.Name, faults)
		}
	})
	if seen < 30 {
		t.Errorf("only %d keys", seen)
	}
}

// A default of the table is what holds without the key, and an example is accepted.
func TestDefaultsMatchTheReader(t *testing.T) {
	every(func(s Section, k FileKey) {
		if k.About == "" || strings.HasSuffix(k.About, ".") || strings.Contains(k.About, "\n") {
			t.Errorf("%s.%s: its line is %q", s.Name, k.Name, k.About)
		}
		if (k.Default == "") == (k.Example == "") && k.Name != "never" {
			t.Errorf("%s.%s needs a default or an example", s.Name, k.Name)
		}
		if k.Default == "" {
			return
		}
		bare, faults := withKey(t, s, "", "")
		said, more := withKey(t, s, k.Name, k.Default)
		if len(faults)+len(more) > 0 {
			t.Errorf("%s.%s = %s: %v %v", s.Name, k.Name, k.Default, faults, more)
			return
		}
		for _, j := range []*Job{bare, said} {
			j.Path, j.Workdir, j.digests, j.Policy.NumericsSaid = "", filepath.Base(j.Workdir), [2]string{}, false
		}
		bare.Workdir, said.Workdir = "", ""
		if diff := cmp.Diff(bare, said, cmpopts.EquateEmpty(), cmp.Exporter(func(reflect.Type) bool { return true })); diff != "" {
			t.Errorf("%s.%s: -without +with its default\n%s", s.Name, k.Name, diff)
		}
	})
}

// The words and the bounds of the table are the reader's.
func TestValuesMatchTheReader(t *testing.T) {
	want := func(good bool, s Section, k FileKey, value string) {
		t.Helper()
		if k.Form == ListForm {
			value = "[" + value + "]"
		}
		if k.Form == TableForm {
			value = `{ "3" = ` + value + " }"
		}
		if _, faults := withKey(t, s, k.Name, value); (len(faults) == 0) != good {
			t.Errorf("%s.%s = %s: %v", s.Name, k.Name, value, faults)
		}
	}
	every(func(s Section, k FileKey) {
		for _, w := range k.Words {
			want(true, s, k, strconv.Quote(w))
		}
		if k.Words != nil {
			want(false, s, k, `"nonesuch"`)
		}
		if k.Form == NumberForm {
			want(true, s, k, fmt.Sprint(k.Least))
			want(true, s, k, fmt.Sprint(k.Most))
			want(false, s, k, fmt.Sprint(k.Least-1))
			want(false, s, k, fmt.Sprint(k.Most+1))
		}
	})
}

// An unknown key is refused in every table: there is no other list of keys.
func TestKeysThatAreNotInTheTableAreRefused(t *testing.T) {
	for _, s := range Sections {
		if s.Keys == nil {
			continue // package recipes judges it
		}
		if _, faults := withKey(t, s, "nonesuch", "1"); len(faults) == 0 {
			t.Errorf("%s.nonesuch is accepted", s.Name)
		}
	}
	if Said("launch", "tty") == nil || Said("launch", "nonesuch") != nil {
		t.Error("Said finds what is not there, or does not find what is")
	}
}
