package job

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gpurun/gpurun/strategy"
)

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
