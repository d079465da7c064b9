package recipes_test

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/pelletier/go-toml/v2"
	"github.com/rogpeppe/go-internal/txtar"

	"github.com/gpurun/gpurun/recipes"
	"github.com/gpurun/gpurun/strategy"
	"github.com/gpurun/gpurun/test/testenv"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// attempt is the folder that new files go into.
const attempt = "run/attempt-1"

// A scene is a command and a plan, and their results. A golden file has those of a recipe, each from
// a file "scene: NAME" of the archive up to the next. That file has lines `recipe NAME` (or none,
// with a knobs.toml), `argv …`, `env NAME=VALUE`, `ranks N`, `nvme
// PATH`, `packages NAME=VERSION …`, `rung NAME`, `unparsed REASON`, `settles` and `plan
// knob=value …`; other files than those below are configuration files. `read` and
// `diff`, or `error`, are golden.
type scene struct {
	recipe recipes.Recipe
	cmd    recipes.Command
	at     recipes.Topology
	plan   strategy.Plan
	remedy string // that the plan applies, empty for a variation
	own    bool   // the knobs are not only the recipe's
	// unparsed is the reason why the framework itself does not read the scene.
	unparsed string
	// settles: gpurun changes the command for any plan.
	settles bool
}

// A goldenScene is a scene as it is written.
type goldenScene struct {
	name, file string
	lines      string
	files      []txtar.File
}

const sceneFile = "scene: "

// golden lists all scenes by their names.
func golden(t testing.TB) []*goldenScene {
	t.Helper()
	files, err := filepath.Glob("testdata/golden/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatalf("no golden files: %v", err)
	}
	var scenes []*goldenScene
	for _, file := range files {
		archive, err := txtar.ParseFile(file)
		testenv.Check(t, err)
		for i, f := range archive.Files {
			if name, begins := strings.CutPrefix(f.Name, sceneFile); begins {
				scenes = append(scenes, &goldenScene{name: name, file: file, lines: string(f.Data)})
			} else if i == 0 {
				t.Fatalf("%s begins with no file %q", file, sceneFile+"NAME")
			} else {
				last := scenes[len(scenes)-1]
				last.files = append(last.files, f)
			}
		}
	}
	slices.SortFunc(scenes, func(a, b *goldenScene) int { return strings.Compare(a.name+".", b.name+".") })
	return scenes
}

// loaded is the catalogue, read once.
var loaded = sync.OnceValues(recipes.Catalog)

func catalogued(t testing.TB, name string) recipes.Recipe {
	t.Helper()
	all, err := loaded()
	testenv.Check(t, err)
	for _, r := range all {
		if r.Name == name {
			return r
		}
	}
	t.Fatalf("no recipe %s", name)
	return recipes.Recipe{}
}

func readScene(t testing.TB, written *goldenScene) scene {
	t.Helper()
	s := scene{at: recipes.Topology{Ranks: 1}, plan: strategy.Plan{}}
	s.cmd.Env, s.cmd.Files = map[string]string{}, map[string][]byte{}
	for _, file := range written.files {
		switch file.Name {
		case "read", "diff", "error":
		case "script":
			s.cmd.Script = file.Data
			s.cmd = parsed(t, s.cmd)
		case "knobs.toml":
			s.recipe, s.own = s.recipe.With(knobsOf(t, string(file.Data))), true
		default:
			s.cmd.Files[file.Name] = file.Data
		}
	}
	for line := range strings.Lines(written.lines) {
		word, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
		switch word {
		case "recipe":
			s.recipe = catalogued(t, rest).With(s.recipe)
		case "argv":
			s.cmd.Argv = strings.Fields(rest)
		case "env":
			name, value, _ := strings.Cut(rest, "=")
			s.cmd.Env[name] = value
		case "nvme":
			s.at.NVMePath = rest
		case "ranks":
			s.at.Ranks, _ = strconv.Atoi(rest)
		case "settles":
			s.settles = true
		case "unparsed":
			s.unparsed = rest
		case "rung":
			s.remedy = rest
		case "packages":
			s.cmd.Packages = map[string]string{}
			for pair := range strings.FieldsSeq(rest) {
				name, version, _ := strings.Cut(pair, "=")
				s.cmd.Packages[name] = version
			}
		case "plan":
			for pair := range strings.FieldsSeq(rest) {
				knob, value, _ := strings.Cut(pair, "=")
				s.plan[strategy.Knob(knob)] = strategy.Value(value)
			}
		}
	}
	return s
}

func knobsOf(t testing.TB, text string) recipes.Recipe {
	t.Helper()
	table := map[string]any{}
	testenv.Check(t, toml.Unmarshal([]byte(text), &table))
	r, problems := recipes.FromKnobs(table)
	if problems != nil {
		t.Fatalf("problems in [knobs]: %v", problems)
	}
	return r
}

func TestGolden(t *testing.T) {
	all := golden(t)
	for _, written := range all {
		t.Run(written.name, func(t *testing.T) {
			got := playScene(t, readScene(t, written))
			if *update {
				written.put(got)
				return
			}
			want := map[string]string{}
			for _, f := range written.files {
				if isResult(f) {
					want[f.Name] = string(f.Data)
				}
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
	if *update {
		rewrite(t, all)
	}
}

// playScene reads and applies, and checks what is true for every scene: the changed command has
// the applied plan, and the plan that the command already has changes nothing.
func playScene(t *testing.T, s scene) map[string]string {
	t.Helper()
	plan, ranges, err := s.recipe.Read(s.cmd, s.at)
	if err != nil {
		return map[string]string{"error": err.Error() + "\n"}
	}
	got := map[string]string{"read": printed(plan, ranges)}
	same, err := s.recipe.Apply(s.cmd, plan, s.at, attempt)
	if s.settles {
		if err != nil || same.Diff == "" {
			t.Errorf("the command's own plan leaves it alone: %v", err)
		}
	} else if err != nil || same.Diff != "" || len(same.Env)+len(same.Files) > 0 || !slices.Equal(same.Argv, s.cmd.Argv) {
		t.Errorf("the command's own plan changes it: %v\n%s", err, same.Diff)
	}
	before := strings.Join(s.cmd.Argv, " ")
	change, err := s.recipe.Apply(s.cmd, plan.With(s.plan), s.at, attempt)
	if err != nil {
		got["error"] = err.Error() + "\n"
		return got
	}
	if strings.Join(s.cmd.Argv, " ") != before {
		t.Error("Apply changed the original command")
	}
	got["diff"] = change.Diff
	next, _, err := s.recipe.Read(after(s.cmd, change), s.at)
	if err != nil {
		t.Fatalf("read the changed command: %v\n%s", err, change.Diff)
	}
	want := plan.With(s.plan)
	if s.recipe.Knobs[strategy.GradientAccumulationSteps].Scope == strategy.ScopeDerived {
		delete(want, strategy.GradientAccumulationSteps)
	}
	for k, v := range want {
		if next[k] != v {
			t.Errorf("after the change %s reads as %q, want %q\n%s", k, next[k], v, change.Diff)
		}
	}
	return got
}

// after returns the changed command.
func after(cmd recipes.Command, change strategy.Command) recipes.Command {
	next := recipes.Command{Argv: change.Argv, Env: maps.Clone(cmd.Env), Files: maps.Clone(cmd.Files), Script: cmd.Script, Code: cmd.Code, Packages: cmd.Packages}
	maps.Copy(next.Env, change.Env)
	next.Calls = change.Calls
	for name, text := range change.Files {
		next.Files[path.Join(attempt, name)] = text
		for old := range cmd.Files { // a recipe may know the file by its own path only
			if path.Base(old) == path.Base(name) {
				next.Files[old] = text
			}
		}
	}
	return next
}

// printed is the plan, one knob per line, with its possible values.
func printed(plan strategy.Plan, ranges map[strategy.Knob]strategy.Range) string {
	var b strings.Builder
	for _, k := range strategy.Knobs {
		r := ranges[k]
		if r.Absent != "" && plan[k] == "" {
			continue // most knobs of most recipes; other tests look at the reasons
		}
		fmt.Fprintf(&b, "%s = %s", k, plan[k])
		if k.Whole() && r.Absent == "" {
			fmt.Fprintf(&b, " from %d", r.Min)
		}
		if r.Max > 0 {
			fmt.Fprintf(&b, " to %d", r.Max)
		}
		if r.Values != nil {
			fmt.Fprintf(&b, " of %v", r.Values)
		}
		if r.Absent != "" {
			fmt.Fprintf(&b, ", but %s", r.Absent)
		}
		if r.Weights {
			b.WriteString(", weights too")
		}
		if r.Scope != "" {
			b.WriteString(", " + r.Scope)
		}
		b.WriteByte('\n')
	}
	return b.String()
}

func isResult(f txtar.File) bool { return f.Name == "read" || f.Name == "diff" || f.Name == "error" }

// put replaces the results of a scene.
func (s *goldenScene) put(got map[string]string) {
	s.files = slices.DeleteFunc(s.files, isResult)
	for _, name := range []string{"read", "diff", "error"} {
		if text, there := got[name]; there {
			s.files = append(s.files, txtar.File{Name: name, Data: []byte(text)})
		}
	}
}

// rewrite writes the golden files.
func rewrite(t *testing.T, scenes []*goldenScene) {
	t.Helper()
	archives := map[string]*txtar.Archive{}
	for _, s := range scenes {
		if archives[s.file] == nil {
			archives[s.file] = &txtar.Archive{}
		}
		archives[s.file].Files = append(append(archives[s.file].Files, txtar.File{Name: sceneFile + s.name, Data: []byte(s.lines)}), s.files...)
	}
	for file, archive := range archives {
		testenv.Check(t, os.WriteFile(file, txtar.Format(archive), 0o644))
	}
}
