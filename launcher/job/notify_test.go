package job

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/gpurun/gpurun/strategy"
)

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
