package job

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/gpurun/gpurun/launcher/commandline"
	"github.com/gpurun/gpurun/strategy"
	"github.com/gpurun/gpurun/test/testenv"
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
	testenv.Check(t, os.WriteFile(filepath.Join(dir, "train.py"), nil, 0o644))
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

// What a train.toml says of metrics is stronger than the user's configuration, each key by
// itself; {job} and {run} are filled in, and paths count from the file that says them.
func TestMetrics(t *testing.T) {
	dir, env := typedAt(t)
	put(t, filepath.Join(dir, ".config/gpurun/config.toml"), "[metrics]\ntextfile = \"/text/{job}.{run}.prom\"\nlisten = \"127.0.0.1:9400\"\n")
	for text, want := range map[string]strategy.Metrics{
		"":                          {TextFile: "/text/train.r1.prom", Listen: "127.0.0.1:9400"},
		"listen = \"\"":             {TextFile: "/text/train.r1.prom", Listen: ""},
		"listen = \":0\"":           {TextFile: "/text/train.r1.prom", Listen: ":0"},
		"listen = \"[::1]:65535\"":  {TextFile: "/text/train.r1.prom", Listen: "[::1]:65535"},
		"listen = \"localhost:0\"":  {TextFile: "/text/train.r1.prom", Listen: "localhost:0"},
		"textfile = \"\"":           {TextFile: "", Listen: "127.0.0.1:9400"},
		"textfile = \"a/x.prom\"":   {TextFile: filepath.Join(dir, "a/x.prom"), Listen: "127.0.0.1:9400"},
		"textfile = \"{run}.prom\"": {TextFile: filepath.Join(dir, "r1.prom"), Listen: "127.0.0.1:9400"},
	} {
		put(t, filepath.Join(dir, "train.toml"), "[job]\nscript = \"train.py\"\n[metrics]\n"+text+"\n")
		j, _, err := Open(t.Context(), []string{filepath.Join(dir, "train.toml")}, env, dir)
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		p := &Prepared{Resolved: Resolved{Inspected: Inspected{Job: *j}}}
		if got := p.MetricsOf("r1"); got != want {
			t.Errorf("%s: %+v, want %+v", text, got, want)
		}
	}
}

func TestMetricsThatCannotBe(t *testing.T) {
	dir, env := typedAt(t)
	const config, job = ".config/gpurun/config.toml", "train.toml"
	for _, test := range []struct{ file, line, want string }{
		{job, `textfile = "x.txt"`, `4:12: metrics.textfile: "x.txt" is not a name that ends in .prom: node_exporter reads no other file`},
		{job, `textfile = "folder/"`, `"folder/" is not a name that ends in .prom`},
		{job, `textfile = "a/.prom"`, `"a/.prom" is not a name that ends in .prom`},
		{job, `textfile = "{host}.prom"`, `{host} has no meaning here; {job} is the job's name, {run} the run's`},
		{job, `textfile = "~/x.prom"`, "only a shell expands ~"},
		{job, `textfile = 3`, "metrics.textfile: want text, found a whole number"},
		{job, `listen = "9400"`, `4:10: metrics.listen: "9400" is not an address with a port, such as "127.0.0.1:9400"`},
		{job, `listen = "127.0.0.1:http"`, "is not an address with a port"},
		{job, `listen = "gpu-7.example.org:9400"`, "is not an address with a port"},
		{job, `listen = "127.0.0.1:65536"`, "is not an address with a port"},
		{job, `listen = 9400`, "metrics.listen: want text, found a whole number"},
		{job, `textfil = "x.prom"`, `4:1: metrics.textfil: unknown key (did you mean "textfile"?)`},
		{config, `textfile = "/text/gpurun.prom"`, `metrics.textfile: all jobs would write one file; put {job} into its name, as in "gpurun-{job}.prom"`},
	} {
		put(t, filepath.Join(dir, config), "")
		put(t, filepath.Join(dir, job), "[job]\nscript = \"train.py\"\n")
		text := fmt.Sprintf("[metrics]\n%s\n", test.line)
		if test.file == job {
			text = "[job]\nscript = \"train.py\"\n" + text
		}
		put(t, filepath.Join(dir, test.file), text)
		_, _, err := Open(t.Context(), []string{filepath.Join(dir, job)}, env, dir)
		var wrong *Error
		if !errors.As(err, &wrong) || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v, want %s", test.line, err, test.want)
		}
	}
}

// Where to send is said as a whole, by the train.toml or else by the user's configuration;
// the events and the timeout each by itself.
func TestNotify(t *testing.T) {
	dir, env := typedAt(t)
	t.Chdir(dir)
	config := filepath.Join(dir, ".config/gpurun")
	put(t, filepath.Join(config, "config.toml"), "[notify]\nurl_file = \"hook\"\nsecret_env = \"KEY\"\ntimeout = \"3s\"\non = [\"failed\"]\n")
	put(t, filepath.Join(config, "hook"), "https://hooks.example/services/T0\n")
	put(t, filepath.Join(dir, "key"), " signed \n")
	put(t, filepath.Join(dir, "two"), "a\nb\n")
	env = append(env, "KEY=very secret", "HOOK=http://10.0.0.1:8080/x", "WRONG=mailto:me")
	own := strategy.Notify{URL: "https://hooks.example/services/T0", Secret: "very secret", On: []string{"failed"}, Timeout: 3 * time.Second}
	place := func(change func(*strategy.Notify)) strategy.Notify {
		n := strategy.Notify{On: own.On, Timeout: own.Timeout}
		change(&n)
		return n
	}
	for text, want := range map[string]strategy.Notify{
		"":                             own,
		"[notify]\non = [\"trained\"]": {URL: own.URL, Secret: own.Secret, On: []string{"trained"}, Timeout: own.Timeout},
		"[notify]\non = []":            {URL: own.URL, Secret: own.Secret, On: []string{}, Timeout: own.Timeout},
		"[notify]\nurl = \"https://x.example/y\"\ntimeout = \"1s\"": place(func(n *strategy.Notify) { n.URL, n.Timeout = "https://x.example/y", time.Second }),
		"[notify]\nurl_env = \"HOOK\"\nsecret_file = \"key\"":       place(func(n *strategy.Notify) { n.URL, n.Secret = "http://10.0.0.1:8080/x", "signed" }),
		"[notify]\ncommand = [\"./tell\", \"-v\"]":                  place(func(n *strategy.Notify) { n.Command = []string{filepath.Join(dir, "tell"), "-v"} }),
		"[notify]\ncommand = [\"tell\"]":                            place(func(n *strategy.Notify) { n.Command = []string{"tell"} }),
		"[notify]\nurl_env = \"NONE\"":                              place(func(n *strategy.Notify) { n.Missing = "the variable NONE, which url_env names, is not set" }),
		"[notify]\nurl_env = \"https_T00_abcdef\"":                  place(func(n *strategy.Notify) { n.Missing = "the variable that url_env names is not set" }),
		"[notify]\nurl_env = \"AKIAIOSFODNN7EXAMPLE\"":              place(func(n *strategy.Notify) { n.Missing = "the variable that url_env names is not set" }),
		"[notify]\nurl_env = \"NONE\"\non = []":                     place(func(n *strategy.Notify) { n.On = []string{} }),
		"[notify]\nurl_env = \"WRONG\"": place(func(n *strategy.Notify) {
			n.Missing = "the value that url_env names is not an address that begins with https:// or http:// and a host"
		}),
		"[notify]\nurl_file = \"none\"": place(func(n *strategy.Notify) {
			n.Missing = "the file that url_file names cannot be read: no such file or directory"
		}),
		"[notify]\nurl_file = \"two\"":                        place(func(n *strategy.Notify) { n.Missing = "the file that url_file names does not hold one line" }),
		"[notify]\nurl_env = \"HOOK\"\nsecret_env = \"NONE\"": place(func(n *strategy.Notify) { n.Missing = "the variable NONE, which secret_env names, is not set" }),
	} {
		put(t, filepath.Join(dir, "train.toml"), "[job]\nscript = \"train.py\"\n"+text+"\n")
		j, _, err := Open(t.Context(), []string{"train.toml"}, env, dir)
		if err != nil {
			t.Errorf("%q: %v", text, err)
			continue
		}
		if diff := cmp.Diff(want, j.Notify); diff != "" || (want.Missing != "") != strings.Contains(strings.Join(j.Warnings, "\n"), "[notify]: "+want.Missing+"; this run sends no notifications") {
			t.Errorf("%q: warned %q (-want +got):\n%s", text, j.Warnings, diff)
		}
	}
	for url, want := range map[string][]string{
		"https://hooks.example/services/T012/x": {"hooks.example/services/T012/x", "services/T012/x", "key"},
		"https://ci.example:8443/gpurun":        {"ci.example:8443/gpurun", "key"}, // a word that stands elsewhere, too
		"http://localhost:8080":                 {"key"}, "http://localhost:8080/": {"key"}, "": {"key"},
	} {
		if diff := cmp.Diff(want, hidden(strategy.Notify{URL: url, Secret: "key"})); diff != "" {
			t.Errorf("%s: -want +got:\n%s", url, diff)
		}
	}
}

// However a file with an address is wrong, the address is not shown.
func TestAddressesAreNotShown(t *testing.T) {
	dir, env := typedAt(t)
	for _, text := range []string{
		"[notify]\nurl = \"https://hooks.example/very-secret", "[notify]\nurl = hooks.example/very-secret", "[notify]\nurll = \"https://hooks.example/very-secret\"",
		"[notify]\nurl = \"hooks.example/very-secret\"", "notify = { url = \"https://hooks.example/very-secret\", styl = \"slack\" }", "[notify]\nurl = [\"https://hooks.example/very-secret\"]",
		"[notify]\nurl = 'ftp://hooks.example/very-secret?very-secret'", "[notify]\nurl_env = \"https://hooks.example/very-secret\"",
	} {
		for _, file := range []string{"train.toml", ".config/gpurun/config.toml"} {
			put(t, filepath.Join(dir, ".config/gpurun/config.toml"), "")
			put(t, filepath.Join(dir, "train.toml"), "[job]\nscript = \"train.py\"\n")
			put(t, filepath.Join(dir, file), text+"\n")
			_, _, err := Open(t.Context(), []string{filepath.Join(dir, "train.toml")}, env, dir)
			var wrong *Error
			if !errors.As(err, &wrong) || !strings.Contains(err.Error(), "^") || strings.Contains(err.Error(), "very-secret") {
				t.Errorf("%s: %q: %v", file, text, err)
			}
		}
	}
}

// Whatever is in [notify] by mistake is not repeated: neither a value, nor its line, nor
// what a parser quotes of it.
func TestValuesOfNotifyAreNotShown(t *testing.T) {
	dir, env := typedAt(t)
	for _, text := range []string{
		`url = "https://h.example/a\"HUSH"` + "\nurl = \"https://h.example/b\"", `command = "curl -H 'Authorization: Bearer HUSH'"`, `command = ["curl", 7, "HUSH"]`,
		`secret_env = "HUSH HUSH"`, `secret_env = "a.HUSH"`, `url_env = "HUSH=x"`, `url_file = "https://h.example/HUSH"`, `secret_file = "x://HUSH"`, `url_file = "~/HUSH"`,
		`style = "HUSH"`, `stile = "HUSH"`, `on = ["HUSH"]`, `on = "HUSH"`, `timeout = "HUSH"`, `timeout = "99h HUSH"`, `url = HUSH`, `url = "HUSH`, `url = "https://h.example/" HUSH`,
		`"https://h.example/HUSH" = "url"`, "url_env = \"HOOK\"\nurl_file = \"HUSH\"", "command = [\n  \"HUSH\",\n  HUSH,\n]", `secret_env = ["HUSH"]`, `url = "https://HUSH\u0000"`,
		"url_env = \"HOOK\" # HUSH\nx = 1 # HUSH", `url = { HUSH = "HUSH" }`,
	} {
		for _, whole := range []string{"[notify]\n" + text + "\n[launch]\n", "[ notify ]\n" + text + "\n", "[launch]\n[\"notify\"]\n" + text + "\n"} {
			put(t, filepath.Join(dir, "train.toml"), whole+"[job]\nscript = \"train.py\"\n")
			_, _, err := Open(t.Context(), []string{filepath.Join(dir, "train.toml")}, env, dir)
			var wrong *Error
			if !errors.As(err, &wrong) || strings.Contains(err.Error(), "HUSH") || !strings.Contains(err.Error(), "notify") && !strings.Contains(err.Error(), "not TOML") {
				t.Errorf("%s: %v", whole, err)
			}
		}
	}
	// What is wrong elsewhere is shown as before, and a file that is not there is not named.
	put(t, filepath.Join(dir, "train.toml"), "[notify]\nurl_file = \"HUSH/HUSH\"\n[job]\nscript = \"train.py\"\n[launch]\nnproc = 1 1\n")
	if _, _, err := Open(t.Context(), []string{filepath.Join(dir, "train.toml")}, env, dir); err == nil || !strings.Contains(err.Error(), "nproc = 1 1") {
		t.Error(err)
	}
	put(t, filepath.Join(dir, "train.toml"), "[notify]\nurl_file = \"HUSH/HUSH\"\n[job]\nscript = \"train.py\"\n")
	j, _, err := Open(t.Context(), []string{filepath.Join(dir, "train.toml")}, env, dir)
	if err != nil || strings.Contains(j.Notify.Missing+strings.Join(j.Warnings, ""), "HUSH") || j.Notify.Missing == "" {
		t.Errorf("%v, %q, %q", err, j.Notify.Missing, j.Warnings)
	}
}

// The outbox is in .gpurun beside the jobs' folders, and no job's.
func TestAJobIsNotTheOutbox(t *testing.T) {
	if badName(".outbox") == "" || badName("outbox") != "" || nameOf("./.outbox.py") != "job" {
		t.Error("a job's folder can be the outbox")
	}
}
