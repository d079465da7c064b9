package job

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/txtar"

	"github.com/gpurun/gpurun/launcher/errext"
	"github.com/gpurun/gpurun/test/testenv"
)

// fixtures returns a folder with the files that a train.toml may name, and in it the train.toml of a kind: those of
// testdata/KIND.txtar, and those whose bytes an archive cannot hold.
func fixtures(t testing.TB, kind string) (dir string, files []string) {
	t.Helper()
	dir = t.TempDir()
	testenv.Check(t, os.CopyFS(dir, os.DirFS("testdata")))
	archive, err := txtar.ParseFile(filepath.Join("testdata", kind+".txtar"))
	if err == nil {
		err = txtar.Write(archive, dir)
	}
	testenv.Check(t, err)
	if files, err = filepath.Glob(filepath.Join(dir, "*."+kind+".toml")); err != nil || len(files) < 10 {
		t.Fatalf("fixtures %s: %q, %v", kind, files, err)
	}
	return dir, files
}

// wants returns what the "# want:" lines of a fixture say.
func wants(t *testing.T, file string) []string {
	t.Helper()
	text, err := os.ReadFile(file)
	testenv.Check(t, err)
	var want []string
	for _, line := range strings.Split(strings.TrimPrefix(string(text), "\uFEFF"), "\n") {
		if rest, ok := strings.CutPrefix(strings.TrimSuffix(line, "\r"), "# want:"); ok {
			want = append(want, strings.TrimPrefix(rest, " "))
		}
	}
	if len(want) == 0 {
		t.Fatalf("%s has no # want: line", file)
	}
	return want
}

func TestBadFiles(t *testing.T) {
	dir, files := fixtures(t, "bad")
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			j, err := Load(file, nil)
			var wrong *Error
			if !errors.As(err, &wrong) {
				t.Fatalf("Load = %v, %v, want an *Error", j, err)
			}
			var got []string
			for _, f := range wrong.Faults {
				what := f.Message
				if f.Key != "" {
					what = f.Key + ": " + what
				}
				what = strings.ReplaceAll(what, dir, "$DIR")
				got = append(got, fmt.Sprintf("%d:%d: %s", f.Line, f.Column, what))
			}
			if diff := cmp.Diff(wants(t, file), got); diff != "" {
				t.Errorf("faults (-want +got):\n%s", diff)
			}
		})
	}
}

func TestGoodFiles(t *testing.T) {
	dir, files := fixtures(t, "good")
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			j, err := Load(file, nil)
			testenv.Check(t, err)
			said := described(j)
			for _, want := range wants(t, file) {
				name, value, _ := strings.Cut(want, " =")
				got, known := said[name]
				if !known {
					t.Fatalf("the fixture wants %q, which no job has", name)
				}
				got = strings.ReplaceAll(got, dir, "$DIR")
				if value = strings.TrimSpace(value); got != value {
					t.Errorf("%s = %s, want %s", name, got, value)
				}
			}
			if len(j.digests[0]) != 32 {
				t.Errorf("digests = %q", j.digests)
			}
		})
	}
}

// described spells every field of a job, as fixtures have it.
func described(j *Job) map[string]string {
	l, r, data := j.Launch, j.Policy, j.Resume.Data
	if j.Resume.Exact {
		data = "kept"
	}
	return map[string]string{
		"path": j.Path, "name": j.Name, "workdir": j.Workdir, "kind": string(j.Kind), "argv": fmt.Sprintf("%q", j.Argv),
		"through": strings.Join(j.start("python"), " "),
		"env":     fmt.Sprint(j.Env), "python": j.Python, "recipe": j.Recipe, "warnings": fmt.Sprintf("%q", j.Warnings),

		"nproc_per_node": l.NprocPerNode, "master_port": fmt.Sprint(l.MasterPort), "self": fmt.Sprint(l.Self),
		"data_parallel": fmt.Sprint(l.DataParallel), "hang_timeout": l.HangTimeout.String(), "probe": fmt.Sprint(l.Probe),
		"snapshot": l.Snapshot, "on_notice": l.OnNotice, "notice_grace": l.NoticeGrace.String(), "tty": l.TTY, "log_limit": fmt.Sprint(l.LogLimit), "max_restarts": fmt.Sprint(l.MaxRestarts), "log_dir": l.LogDir, "redirects": fmt.Sprint(l.Redirects),
		"tee": fmt.Sprint(l.Tee), "local_ranks_filter": fmt.Sprint(l.LocalRanksFilter), "role": l.Role, "run_id": l.RunID,
		"shutdown_timeout": l.ShutdownTimeout.String(), "local_rank_arg": fmt.Sprint(l.LocalRankArg),

		"mode": string(r.Mode), "prefer": string(r.Prefer), "climb": fmt.Sprint(r.Speedup), "max_attempts": fmt.Sprint(r.MaxAttempts), "numerics": string(r.Numerics), "never": fmt.Sprintf("%q", r.Never),
		"nvme_path": r.NVMePath, "transient_retries": fmt.Sprint(r.TransientRetries),
		"restart_from_zero": r.RestartFromZero.String(),

		"device_memory": fmt.Sprint(j.DeviceMemory), "knobs": fmt.Sprint(j.Knobs),
		"resume": strings.TrimSpace(fmt.Sprintf("%s %q", j.Resume.Latest, j.Resume.Args)), "data": data, "step": j.Step,
	}
}

// write puts a train.toml and its script into a new folder.
func write(t *testing.T, text string) string {
	t.Helper()
	dir := t.TempDir()
	for name, content := range map[string]string{"train.toml": text, "train.py": ""} {
		testenv.Check(t, os.WriteFile(filepath.Join(dir, name), []byte(content), 0o644))
	}
	return filepath.Join(dir, "train.toml")
}

func TestErrorIsPrintedWithSourceAndCaret(t *testing.T) {
	file := write(t, "[job]\nscript = \"train.py\"\n[recovery]\n\tmod = \"off\"\nmax_attempts = 0\n")
	t.Chdir(filepath.Dir(file))
	_, err := Load("train.toml", nil)
	const want = `train.toml:4:2: recovery.mod: unknown key (did you mean "mode"?)
    	mod = "off"
    	^
train.toml:5:16: recovery.max_attempts: 0 is less than 1
    max_attempts = 0
                   ^`
	if err == nil {
		t.Fatal("no error")
	}
	if diff := cmp.Diff(want, err.Error()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestChecksAreReportedInTheOrderOfTheFile(t *testing.T) {
	file := write(t, `[job]
script = "train.py"
[[knobs.micro_batch_size]]
arg = "--bs"
[[knobs.micro_batch_size]]
file = "ds.json"
[knobs.micro_batch_size.via]
arg = 3
[knobs.precision]
choose = { "b f16" = ["--amp", 1], fp32 = [["a"], [2]] }
[recovery]
mode = "lader"
`)
	check := func(table map[string]any) []Problem {
		places := table["knobs"].(map[string]any)["micro_batch_size"].([]any)
		if len(places) != 2 || places[1].(map[string]any)["file"] != "ds.json" {
			t.Errorf("the check got %v", table)
		}
		return []Problem{
			{Key: []string{"recovery"}, Message: "seen last"},
			{Key: []string{"knobs", "precision", "choose", "b f16", "1"}, Message: "want text", AtValue: true},
			{Key: []string{"knobs", "precision", "choose", "fp32", "1", "0"}, Message: "nested", AtValue: true},
			{Key: []string{"knobs", "micro_batch_size", "1", "path"}, Message: "is missing", Suggest: "p"},
			{Key: []string{"knobs", "micro_batch_size", "1", "file"}, Message: "bad"},
			{Key: []string{"knobs", "micro_batch_size", "1", "file"}, Message: "bad"},
			{Key: []string{"knobs", "micro_batch_size", "1", "via", "arg"}, Message: "of the second", AtValue: true},
		}
	}
	_, err := Load(file, nil, check)
	var wrong *Error
	if !errors.As(err, &wrong) {
		t.Fatalf("Load: %v", err)
	}
	var got []string
	for _, f := range wrong.Faults {
		got = append(got, fmt.Sprintf("%d:%d %s: %s", f.Line, f.Column, f.Key, f.Message))
	}
	want := []string{
		`5:9 knobs.micro_batch_size[1].path: is missing (did you mean "p"?)`,
		`6:1 knobs.micro_batch_size[1].file: bad`,
		`8:7 knobs.micro_batch_size[1].via.arg: of the second`,
		`10:32 knobs.precision.choose."b f16"[1]: want text`,
		`10:52 knobs.precision.choose.fp32[1][0]: nested`,
		`11:2 recovery: seen last`,
		`12:8 recovery.mode: unknown value "lader", want "predict", "ladder" or "off" (did you mean "ladder"?)`,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("faults (-want +got):\n%s", diff)
	}
}

func TestFileThatCannotBeRead(t *testing.T) {
	dir := t.TempDir()
	large := filepath.Join(dir, "model.toml")
	testenv.Check(t, os.WriteFile(large, make([]byte, largestJob+1), 0o644))
	for _, c := range []struct {
		path, want string
		is         error
	}{
		{filepath.Join(dir, "none.toml"), "no such file", fs.ErrNotExist},
		{dir, "is a directory", nil},
		{large, "too large", nil},
	} {
		_, err := Load(c.path, nil)
		if err == nil || !strings.Contains(err.Error(), c.want) || errext.Hint(err) == "" {
			t.Errorf("Load(%s) = %#v, want a message with %q and a hint", c.path, err, c.want)
		}
		if c.is != nil && !errors.Is(err, c.is) {
			t.Errorf("Load(%s): %v does not rest on %v", c.path, err, c.is)
		}
	}
}

func TestResumePatternQuotesTheFolder(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a[1]*")
	testenv.Check(t, os.MkdirAll(filepath.Join(dir, "out"), 0o755))
	text := "[job]\nprogram = [\"x\"]\n[resume]\nlatest = \"out/ckpt-*\"\nargs = [\"{latest}\"]\n"
	checkpoint := filepath.Join(dir, "out", "ckpt-1")
	for name, content := range map[string]string{filepath.Join(dir, "train.toml"): text, checkpoint: ""} {
		testenv.Check(t, os.WriteFile(name, []byte(content), 0o644))
	}
	j, err := Load(filepath.Join(dir, "train.toml"), nil)
	testenv.Check(t, err)
	got, err := filepath.Glob(j.Resume.Latest)
	if diff := cmp.Diff([]string{checkpoint}, got); err != nil || diff != "" {
		t.Errorf("%s: %v (-want +got):\n%s", j.Resume.Latest, err, diff)
	}
}

func TestDigestDistinguishesJobs(t *testing.T) {
	load := func(file string) [2]string {
		t.Helper()
		j, err := Load(file, nil)
		testenv.Check(t, err)
		return j.digests
	}
	file := write(t, "[job]\nscript = \"train.py\"\n")
	first := load(file)
	if again := load(file); again != first {
		t.Errorf("the same file has two digests: %s, %s", first, again)
	}
	testenv.Check(t, os.WriteFile(file, []byte("[job]\nscript = \"train.py\"\nargs = [\"-x\"]\n"), 0o644))
	if changed := load(file); changed == first {
		t.Error("a changed file has the same digest")
	}
	dir := filepath.Dir(file)
	digests := map[[2]string][]string{}
	for _, args := range [][]string{
		{"train.py"}, {"train.py", "a", "b"}, {"train.py", "a b"}, {"train.py", "ab"}, {"--nproc-per-node", "2", "train.py"},
		{"-m", "train.py"},
	} {
		j, err := FromArgs(args, nil, dir)
		testenv.Check(t, err)
		if other, same := digests[j.digests]; same {
			t.Errorf("%q and %q have the same digest", args, other)
		}
		digests[j.digests] = args
	}
	moved, err := FromArgs([]string{"--master-port", "1", "--rdzv-id", "x", "train.py"}, nil, dir)
	testenv.Check(t, err)
	if _, same := digests[moved.digests]; !same {
		t.Error("port and run id make another job")
	}
}

// Notifications and metrics do not make another job of it.
func TestCommandsThatAreNoJob(t *testing.T) {
	const job = "[job]\nscript = \"train.py\"\n"
	of := func(text string) [2]string {
		t.Helper()
		j, err := Load(write(t, text), nil)
		testenv.Check(t, err)
		return [2]string{j.digests[1], fmt.Sprint(j.digests[1] != "")}
	}
	want := of(job)
	for text, same := range map[string]bool{
		job + "[notify]\nurl = \"https://example.org/a\"\n": true, job + "[metrics]\nlisten = \":0\"\n": true, "# why\n" + job + "\n": true,
		job + "[launch]\nstall_timeout = \"auto\"\nlog_limit = \"1GiB\"\n": true, job + "[launch]\nnproc_per_node = 2\nlog_limit = \"off\"\n": false,
		job + "args = [\"a\", \"b\"]\n": false, job + "[recovery]\nnumerics = \"any\"\n": false,
	} {
		if got := of(text); (got == want) != same {
			t.Errorf("%s: %s, %s", text, got, want)
		}
	}
	if of(job+"args = [\"a\", \"b\"]\n") == of(job+"args = [\"a b\"]\n") || of(job+"args = [\"1\"]\n[knobs]\nx = 1\n") == of(job+"args = [\"1\"]\n[knobs]\nx = \"1\"\n") {
		t.Error("values that differ have one digest")
	}
}

// TestDeepFile holds that nesting, as deep as a file can be, costs neither time
// nor memory.
func TestDeepFile(t *testing.T) {
	const deep = largestJob / 2
	for _, text := range []string{
		"a = " + strings.Repeat("[", deep) + strings.Repeat("]", deep),
		"a" + strings.Repeat(".a", deep) + " = 1",
		"[" + strings.Repeat("a. ", deep) + "a]",
		strings.Repeat("a = {", deep/3),
		strings.Repeat("a={b.b.b.b.b.b.b=", deep/10),
		strings.Repeat("[\"]\"", deep/10),
	} {
		start := time.Now()
		_, wrong := parse("/train.toml", []byte(text), base{job: defaults()}, nil)
		if took := time.Since(start); len(wrong) == 0 || took > time.Minute {
			t.Errorf("%.20s…: %d faults after %v", text, len(wrong), took)
		}
	}
	for _, text := range []string{
		"[job]\nprogram = ['" + strings.Repeat("[.", 100) + "', \"\\\"" + strings.Repeat("{.", 100) + "\"]",
		"[job]\nprogram = ['x'] # " + strings.Repeat("[.", 100),
		"[job]\nprogram = [" + strings.Repeat("'''[.\n''',", 100) + "]",
		"[job]\nprogram = ['x']\n[knobs]\na = [" + strings.Repeat("[0.1], {a.b = 0.5},\n", 100) + "]",
	} {
		if _, wrong := parse("/train.toml", []byte(text), base{job: defaults()}, nil); len(wrong) > 0 {
			t.Errorf("%.40s…: %+v", text, wrong[0].Message)
		}
	}
}

// FuzzLoad holds that no text makes the loader panic, and that every fault is at
// a place that is in the text.
func FuzzLoad(f *testing.F) {
	for _, kind := range []string{"bad", "good"} {
		_, files := fixtures(f, kind)
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				f.Fatal(err)
			}
			f.Add(text)
		}
	}
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, text []byte) {
		for bytes.HasPrefix(text, []byte("\uFEFF")) {
			text = text[3:]
		}
		check := func(table map[string]any) []Problem { return everyPath(table, nil) }
		_, wrong := parse(filepath.Join(dir, "train.toml"), text, base{job: defaults()}, []Check{check})
		lines := strings.Split(string(text), "\n")
		e := &Error{File: "train.toml", Faults: wrong}
		for _, fault := range wrong {
			if fault.Line < 1 || fault.Line > len(lines) || fault.Column < 1 || fault.Column > len([]rune(lines[fault.Line-1]))+1 {
				t.Errorf("%+v is not in the text", fault)
			}
		}
		if printed := e.Error(); len(wrong) > 0 && !strings.HasPrefix(printed, "train.toml:") {
			t.Errorf("printed as %q", printed)
		}
	})
}

// everyPath makes a problem of every key and element.
func everyPath(v any, path []string) []Problem {
	var all []Problem
	if len(path) > 0 {
		own := append([]string(nil), path...)
		all = append(all, Problem{Key: own, Message: "key"}, Problem{Key: own, Message: "value", AtValue: true})
	}
	switch v := v.(type) {
	case map[string]any:
		for key, value := range v {
			all = append(all, everyPath(value, append(path, key))...)
		}
	case []any:
		for i, value := range v {
			all = append(all, everyPath(value, append(path, fmt.Sprint(i)))...)
		}
	}
	return all
}

func TestParseSize(t *testing.T) {
	for text, want := range map[string]int64{
		"24GiB": 24 << 30, "24 GiB": 24 << 30, " 512MiB ": 512 << 20, "1.5GiB": 3 << 29, "80GB": 80e9, "24gib": 24 << 30,
		"1TB": 1e12, "1TiB": 1 << 40, "64KiB": 64 << 10, "64KB": 64000, "7B": 7, "0.5KiB": 512,
	} {
		if got, err := ParseSize(text); err != nil || got != want {
			t.Errorf("ParseSize(%q) = %d, %v, want %d", text, got, err, want)
		}
	}
	for text, want := range map[string]string{
		"24": `write "24GiB"`, "24G": `write "24GiB"`, "24m": `write "24MiB"`, "24Gi": `write "24GiB"`, "3 parsecs": "unknown unit",
		"": "not a size", "GiB": "not a size", "-1GiB": "not a size", "1e3GiB": "not a size", "1.2.3GiB": "not a size",
		"0GiB": "out of range", "9999999999TiB": "out of range", "0.1B": "out of range", "NaNGiB": "not a size",
	} {
		if got, err := ParseSize(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("ParseSize(%q) = %d, %v, want an error with %q", text, got, err, want)
		}
	}
}

func TestParseDuration(t *testing.T) {
	for text, want := range map[string]time.Duration{
		"30s": 30 * time.Second, "30m": 30 * time.Minute, "2h30m": 150 * time.Minute, "1.5h": 90 * time.Minute,
		"500ms": 500 * time.Millisecond, "0s": 0,
	} {
		if got, err := parseDuration(text); err != nil || got != want {
			t.Errorf("parseDuration(%q) = %v, %v, want %v", text, got, err, want)
		}
	}
	for text, want := range map[string]string{
		"30": `write "30s"`, "1.5": `write "1.5s"`, "2 days": `write "48h"`, "1d": `write "24h"`, "30min": `write "30m"`,
		"30 s": `write "30s"`, "30M": `write "30m"`, "5 hours": `write "5h"`, "-1s": "negative", "": "not a duration", "soon": "not a duration",
		"3 parsecs": "not a duration", "-30": "not a duration",
	} {
		if got, err := parseDuration(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("parseDuration(%q) = %v, %v, want an error with %q", text, got, err, want)
		}
	}
}
