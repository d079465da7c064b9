package cluster

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/gpurun/gpurun/test/testenv"
)

// readVectors returns what Slurm makes of each list, nil names with ok false
// where it reports an error.
func readVectors(t testing.TB) (lists []string, want map[string][]string) {
	text, err := os.ReadFile("testdata/hostlists.txt")
	testenv.Check(t, err)
	want = map[string][]string{}
	for line := range strings.Lines(string(text)) {
		list, names, found := strings.Cut(strings.TrimSuffix(line, "\n"), "\t=>\t")
		if strings.HasPrefix(line, "#") || !found {
			continue
		}
		lists = append(lists, list)
		want[list] = strings.Fields(names)
	}
	return lists, want
}

func TestHostsAsSlurm(t *testing.T) {
	lists, want := readVectors(t)
	if len(lists) < 60 {
		t.Fatalf("%d vectors were read", len(lists))
	}
	for _, list := range lists {
		got, err := Hosts(list)
		if slices.Equal(want[list], []string{"!"}) {
			if err == nil {
				t.Errorf("Hosts(%q) = %q, want an error", list, got)
			}
			continue
		}
		if err != nil {
			t.Errorf("Hosts(%q): %v", list, err)
		} else if !slices.Equal(got, want[list]) {
			t.Errorf("Hosts(%q) = %q, want %q", list, got, want[list])
		}
	}
}

func TestHostsBounded(t *testing.T) {
	for _, list := range []string{
		"n[0-65535],m",
		"n[0-255][0-256]",
		strings.Repeat("n[0-9]", 64),
		"n[0-18446744073709551615]",
		"n[99999999999999999999]",
		strings.Repeat("n", 256),
		"n[" + strings.Repeat("0", 300) + "1]",
		strings.Repeat("n[1-50000],", 4),
	} {
		if hosts, err := Hosts(list); err == nil {
			t.Errorf("Hosts(%.30q…) = %d names, want an error", list, len(hosts))
		}
	}
	hosts, err := Hosts("n[0-255][0-255]")
	if err != nil || len(hosts) != 65536 || hosts[65535] != "n255255" {
		t.Errorf("a list of 65536 names: %d names, %v", len(hosts), err)
	}
	hosts, err = Hosts("n[18446744073709551614-18446744073709551615]")
	if diff := cmp.Diff([]string{"n18446744073709551614", "n18446744073709551615"}, hosts); diff != "" || err != nil {
		t.Errorf("the largest numbers: %v\n%s", err, diff)
	}
}

// A list of plain names is what it says.
func TestHostsLiteral(t *testing.T) {
	name := rapid.StringMatching(`[a-z][a-z0-9.-]{0,20}`)
	rapid.Check(t, func(t *rapid.T) {
		names := rapid.SliceOfN(name, 0, 8).Draw(t, "names")
		got, err := Hosts(strings.Join(names, ","))
		if err != nil || !slices.Equal(got, names) {
			t.Fatalf("%q, %v, want %q", got, err, names)
		}
	})
}

func FuzzHosts(f *testing.F) {
	lists, _ := readVectors(f)
	for _, list := range lists {
		f.Add(list)
	}
	f.Fuzz(func(t *testing.T, list string) {
		hosts, err := Hosts(list)
		if err != nil {
			if hosts != nil {
				t.Fatalf("%d names beside the error %v", len(hosts), err)
			}
			return
		}
		if len(hosts) > maxHosts {
			t.Fatalf("%d names", len(hosts))
		}
		for _, host := range hosts {
			if host == "" || len(host) > maxName || strings.ContainsAny(host, ", \t\n[") {
				t.Fatalf("%q is no name", host)
			}
		}
		// Names are plain, so a list of them is read back.
		again, err := Hosts(strings.Join(hosts, ","))
		if err != nil || !slices.Equal(again, hosts) {
			t.Fatalf("%q read back as %q, %v", hosts, again, err)
		}
	})
}
