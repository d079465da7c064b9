package manual

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/pelletier/go-toml/v2"
	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/urfave/cli/v2"

	"github.com/gpurun/gpurun/launcher/job"
)

// text is what a writer writes.
func text(t *testing.T, write func(io.Writer) error) string {
	t.Helper()
	var b bytes.Buffer
	if err := write(&b); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// The page of the keys that make docs writes is the one that is committed.
func TestConfigPageIsNew(t *testing.T) {
	want, err := os.ReadFile(filepath.Join("..", "..", "docs", "config.md"))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), text(t, WriteConfigPage)); diff != "" {
		t.Errorf("docs/config.md is old: run make docs; -committed +generated\n%s", diff)
	}
}

// What help config prints is a train.toml, in which a script is all that is missing.
func TestConfigIsATrainFile(t *testing.T) {
	t.Chdir(t.TempDir())
	config := strings.Replace(text(t, WriteConfig), "# script ", "script ", 1)
	if _, wrong := open(t, config); wrong != nil {
		t.Errorf("%v\n%s", wrong, config)
	}
	if why := refused(t, schema(t), config); why != nil {
		t.Error(why)
	}
	for _, s := range job.Sections {
		for _, k := range s.Keys {
			if !strings.Contains(config, k.Name+" ") || !strings.Contains(config, k.About) {
				t.Errorf("%s.%s is not in it", s.Name, k.Name)
			}
		}
	}
}

// open reads the text of a train.toml that may name train.py, in a folder that is changed to.
func open(t *testing.T, text string) (*job.Job, error) {
	t.Helper()
	for name, text := range map[string]string{"train.py": "", "train.toml": text} {
		if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	j, _, err := job.Open(t.Context(), []string{"train.toml"}, []string{"PATH=" + os.Getenv("PATH")}, dir)
	return j, err
}

// schema is the schema as a validator has it, which judges the schema itself first.
func schema(t *testing.T) *jsonschema.Schema {
	t.Helper()
	document, err := jsonschema.UnmarshalJSON(strings.NewReader(text(t, WriteSchema)))
	if err != nil {
		t.Fatal(err)
	}
	compiler := jsonschema.NewCompiler()
	if err := compiler.AddResource("train.schema.json", document); err != nil {
		t.Fatal(err)
	}
	s, err := compiler.Compile("train.schema.json")
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// refused is why the schema refuses the text of a train.toml; nil where it does not.
func refused(t *testing.T, s *jsonschema.Schema, text string) error {
	t.Helper()
	var values map[string]any
	if err := toml.Unmarshal([]byte(text), &values); err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	asJSON, err := json.Marshal(values)
	if err != nil {
		t.Fatal(err)
	}
	value, err := jsonschema.UnmarshalJSON(bytes.NewReader(asJSON))
	if err != nil {
		t.Fatal(err)
	}
	return s.Validate(value)
}

// The schema takes every train.toml that is here.
func TestSchemaTakesTheExamples(t *testing.T) {
	s, seen := schema(t), 0
	for _, pattern := range []string{"examples/*/*.toml", "test/testdata/*/*/*.toml", "test/testdata/*/*.toml"} {
		files, err := filepath.Glob(filepath.Join("..", "..", pattern))
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range files {
			text, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			seen++
			if why := refused(t, s, string(text)); why != nil {
				t.Errorf("%s: %v", name, why)
			}
		}
	}
	if seen < 10 {
		t.Errorf("only %d files", seen)
	}
}

// odd are values of every kind, as a train.toml spells them, and those that matter to a form.
var (
	odd       = []string{`true`, `1`, `1.5`, `"x"`, `[]`, `["x"]`, `{}`}
	oddOfForm = map[job.Form][]string{
		job.NumberForm:   {`0`, `-1`, `70000`, `"auto"`, `"1"`},
		job.DurationForm: {`"30s"`, `"2h30m"`, `"-1s"`, `"5 s"`, `"1d"`, `".5h"`, `""`},
		job.SizeForm:     {`"24GiB"`, `"0.5 TB"`, `"24"`, `"4 parsecs"`, `"off"`, `"1.5.2GB"`, `"12mb"`},
		job.ListForm:     {`["nvme"]`, `["nvme", "x"]`, `[1]`, `"nvme"`},
		job.TableForm:    {`{ A = "b" }`, `{ A = 1 }`},
		job.TextForm:     {`"off"`, `"auto"`, `""`},
	}
)

// The schema and the reader agree on the values of every key. What only the reader can
// know is what a text means: a path, a name, a pattern.
func TestSchemaMatchesTheReader(t *testing.T) {
	t.Chdir(t.TempDir())
	s := schema(t)
	for _, section := range job.Sections {
		for _, k := range section.Keys {
			if section.Name == "resume" {
				continue // its keys need each other: below
			}
			if section.Name == "notify" && k.Name == "timeout" {
				continue // how long a duration is the schema cannot see
			}
			for _, value := range slices.Concat(odd, oddOfForm[k.Form]) {
				text := trainFile(section, k.Name, value)
				_, wrong := open(t, text)
				why := refused(t, s, text)
				switch means := k.Form == job.TextForm && k.Words == nil || k.Form == job.PathForm || k.Form == job.PatternForm || k.Form == job.ListForm && k.Words == nil; {
				case why != nil && wrong == nil:
					t.Errorf("%s.%s = %s: only the schema refuses it: %v", section.Name, k.Name, value, why)
				case why == nil && wrong != nil && !means && !strings.Contains(wrong.Error(), " than "): // the bounds of a duration or a size
					t.Errorf("%s.%s = %s: only the reader refuses it: %v", section.Name, k.Name, value, wrong)
				}
			}
		}
	}
}

// trainFile is a job with one key.
func trainFile(s job.Section, key, value string) string {
	text := "[" + s.Name + "]\n"
	if s.OneOf != nil && !slices.Contains(s.OneOf, key) { // a key that this one requires
		text += s.OneOf[0] + " = " + job.Said(s.Name, s.OneOf[0]).Example + "\n"
	}
	if s.Name != "job" {
		text = "[job]\nscript = \"train.py\"\n" + text
	}
	return text + key + " = " + value + "\n"
}

// What is wrong between keys, and what is unknown, both refuse.
func TestSchemaRefusesWhatTheReaderDoes(t *testing.T) {
	t.Chdir(t.TempDir())
	s := schema(t)
	for _, text := range []string{
		"",
		"[job]\n",
		"[job]\nname = \"x\"\n",
		"[job]\nscript = \"train.py\"\nmodule = \"train\"\n",
		"[job]\ncommand = \"python train.py\"\nargs = [\"x\"]\n",
		"[job]\nscrip = \"train.py\"\n",
		"[job]\nscript = \"train.py\"\n[recovery]\nmod = \"off\"\n",
		"[job]\nscript = \"train.py\"\n[recover]\nmode = \"off\"\n",
		"[job]\nscript = \"train.py\"\n[resume]\nlatest = \"x\"\n",
		"[job]\nscript = \"train.py\"\n[resume]\nargs = [\"{latest}\"]\n",
		"[job]\nscript = \"train.py\"\n[knobs]\nmicro_batch = { arg = \"--bs\" }\n",
		"[job]\nscript = \"train.py\"\n[knobs]\nmicro_batch_size = { ar = \"--bs\" }\n",
		"[job]\nscript = \"train.py\"\n[knobs]\nmicro_batch_size = \"derived\"\n",
		"[job]\nscript = \"train.py\"\n[knobs]\nmicro_batch_size = []\n",
	} {
		if _, wrong := open(t, text); wrong == nil {
			t.Errorf("the reader takes %q", text)
		}
		if refused(t, s, text) == nil {
			t.Errorf("the schema takes %q", text)
		}
	}
	for _, text := range []string{
		"[job]\nscript = \"train.py\"\n[resume]\nlatest = \"x\"\nargs = [\"--r\", \"{latest}\"]\ndata = \"kept\"\n",
		"[job]\nscript = \"train.py\"\n[knobs]\nmicro_batch_size = [{ arg = \"--bs\" }, { env = \"BS\" }]\ngradient_accumulation_steps = \"derived\"\n",
	} {
		if _, wrong := open(t, text); wrong != nil {
			t.Error(wrong)
		}
		if why := refused(t, s, text); why != nil {
			t.Error(why)
		}
	}
}

// app is a command line like gpurun's.
func app() *cli.App {
	return &cli.App{Name: "gpurun", Usage: "run a job", UsageText: "gpurun train.toml", Commands: []*cli.Command{
		{Name: "run", Usage: "run a job", UsageText: "gpurun [flags] train.toml\ngpurun [flags] COMMAND…", SkipFlagParsing: true},
		{Name: "plan", Usage: "show a plan", UsageText: "gpurun plan [--json] train.toml\ngpurun plan script.py [arguments …]", SkipFlagParsing: true},
		{Name: "logs", Usage: "show logs", UsageText: "gpurun logs [RUN]", Flags: []cli.Flag{
			&cli.BoolFlag{Name: "follow", Aliases: []string{"f"}, Usage: "go on"}, &cli.IntFlag{Name: "rank", Usage: "which rank `K`", DefaultText: "all"},
			&cli.StringFlag{Name: "output", Aliases: []string{"o"}, Usage: "to `FILE`"},
		}},
		{Name: "recipes", Usage: "list recipes", UsageText: "gpurun recipes [NAME]", Subcommands: []*cli.Command{{Name: "detect", Usage: "say which", UsageText: "gpurun recipes detect train.toml", SkipFlagParsing: true}}},
		{Name: "estimate", Usage: "say what fits", UsageText: "gpurun estimate SIZE", SkipFlagParsing: true},
		{Name: "completion", Usage: "complete", UsageText: CompletionUsage},
		{Name: "help", Usage: "help", UsageText: HelpUsage, SkipFlagParsing: true},
	}}
}

// What may follow a line, the last word of which is typed in part.
func TestComplete(t *testing.T) {
	t.Chdir(t.TempDir())
	for _, run := range []string{"gpt/night-1", "gpt/bad\x1bname"} {
		dir := filepath.Join(".gpurun", run)
		if err := os.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "journal.jsonl"), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for line, want := range map[string]string{
		"pl":                        "plan :files",
		"--mode=l":                  "",
		"--mode ":                   ":files",
		"--never nvme,micro-":       ":files",
		"--run-dir ":                ":files",
		"--json pla":                "plan :files",
		"--json plan --num":         "--numerics",
		"plan --mode off train.t":   ":files",
		"plan train.toml --fre":     "--fresh",
		"python train.py --f":       ":files",
		"python ":                   ":files",
		"-- lo":                     ":files",
		"logs ":                     "gpt/night-1 :files",
		"logs gpt/night-1 ":         "",
		"logs -":                    "--follow -f --help -h --output -o --rank",
		"logs --rank ":              ":files",
		"logs -o x":                 ":files",
		"recipes hf-trainer-":       "hf-trainer-code",
		"recipes de":                "deepspeed detectron2 detect",
		"recipes detect x":          ":files",
		"estimate 7B --zer":         "--zero",
		"plan --deadline 4h t":      ":files",
		"completion ":               "bash zsh fish",
		"completion bash ":          "",
		"help con":                  "config",
		"help ma":                   "man",
		"help man pl":               "plan",
		"--tee 3 --local-ranks-f":   "--local-ranks-filter",
		"--deadline 4h train.toml ": "",
	} {
		words := strings.Split(line, " ")
		var b strings.Builder
		if _, err := Complete(app(), words).WriteTo(&b); err != nil {
			t.Fatal(err)
		}
		var got []string
		for line := range strings.Lines(b.String()) {
			word, _, _ := strings.Cut(strings.TrimSpace(line), "\t")
			got = append(got, word)
		}
		if strings.Join(got, " ") != want {
			t.Errorf("gpurun %s: %q, want %q", line, strings.Join(got, " "), want)
		}
	}
}

// A manual page is troff that formatters have nothing against.
func TestManualPages(t *testing.T) {
	a := app()
	a.Commands = append(a.Commands, &cli.Command{Name: "odd", Description: ".x\n'y *z* [a](b) `c` \\d"})
	pages := map[string]string{"gpurun": text(t, func(w io.Writer) error { return WriteMan(w, a) })}
	for _, c := range a.Commands {
		pages["gpurun-"+c.Name] = text(t, func(w io.Writer) error { return WriteManOf(w, c) })
	}
	for page, parts := range map[string][]string{
		"gpurun":      {".TH GPURUN 1", `\fB--run-dir\fP \fIDIR\fP`, "\n.SS The policy, over ", `\fBgpurun-logs(1)\fP`, "~/.config/gpurun/config.toml"},
		"gpurun-logs": {".TH GPURUN-LOGS 1", `\fB--rank\fP \fIK\fP` + "\nwhich rank K (default: all)", "gpurun logs [RUN]"},
		"gpurun-odd":  {"\\&.x\n\\&'y *z* [a](b) `c` \\\\d"},
	} {
		for _, part := range parts {
			if !strings.Contains(pages[page], part) {
				t.Errorf("%s has no %q:\n%s", page, part, pages[page])
			}
		}
	}
	if _, err := exec.LookPath("mandoc"); err != nil {
		t.Skip("mandoc is not installed: the pages were not linted")
	}
	for name, page := range pages {
		file := filepath.Join(t.TempDir(), name+".1")
		if err := os.WriteFile(file, []byte(page), 0o644); err != nil {
			t.Fatal(err)
		}
		out, _ := exec.Command("mandoc", "-Tlint", "-Wwarning", file).CombinedOutput() // its code says that there were warnings
		for line := range strings.Lines(string(out)) {
			if !strings.Contains(line, "missing date") { // the same source gives the same page
				t.Error(fmt.Sprint(name, ": ", line))
			}
		}
	}
}

// The commit is that of the build, or that in the version that Go gives to a commit without a tag.
func TestCommitOfABuild(t *testing.T) {
	const revision = "ea745f15b19b5c0c8a209e39947cfdc7278aba1f"
	for _, test := range []struct{ version, revision, want string }{
		{"(devel)", revision, revision},
		{"v1.2.3", revision, revision},
		{"v0.0.0-20261123232416-ea745f15b19b", "", "ea745f15b19b"},
		{"v1.2.4-0.20261123232416-ea745f15b19b+dirty", "", "ea745f15b19b"},
		{"v1.2.3", "", ""},
		{"(devel)", "", ""},
	} {
		info := &debug.BuildInfo{Main: debug.Module{Version: test.version}}
		if test.revision != "" {
			info.Settings = []debug.BuildSetting{{Key: "vcs.revision", Value: test.revision}}
		}
		if got := commitIn(info); got != test.want {
			t.Errorf("%s, %q: %q, want %q", test.version, test.revision, got, test.want)
		}
	}
}
