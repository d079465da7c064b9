package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/urfave/cli/v2"

	"github.com/gpurun/gpurun/strategy/cause"
	"github.com/gpurun/gpurun/test/testenv"
)

// pages are the project's own pages for people.
func pages(t *testing.T) []string {
	t.Helper()
	found := []string{"README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md", "recipes/README.md"}
	docs, err := filepath.Glob(filepath.Join(testenv.Root(t), "docs", "*.md"))
	testenv.Check(t, err)
	for _, name := range docs {
		found = append(found, "docs/"+filepath.Base(name))
	}
	return found
}

// A link to a file that has moved sends a reader nowhere.
func TestLinksOfThePagesLeadSomewhere(t *testing.T) {
	link := regexp.MustCompile(`\]\(([^)#]*)(#[^)]*)?\)`)
	seen := 0
	for _, name := range pages(t) {
		for _, m := range link.FindAllStringSubmatch(testenv.Page(t, name), -1) {
			if strings.Contains(m[1], "://") {
				continue
			}
			seen++
			to := path.Join(path.Dir(name), m[1])
			if m[1] == "" {
				to = name
			}
			if _, err := os.Stat(filepath.Join(testenv.Root(t), to)); err != nil {
				t.Errorf("%s links to %s, which is not there", name, m[1])
			} else if m[2] != "" && !slices.Contains(anchors(testenv.Page(t, to)), m[2]) {
				t.Errorf("%s links to %s, and that page has no headline %s", name, m[1], m[2])
			}
		}
	}
	if seen < 10 {
		t.Errorf("only %d links were looked at", seen)
	}
}

// anchors are what a page's headlines are linked by.
func anchors(text string) []string {
	var all []string
	for _, m := range regexp.MustCompile(`(?m)^#+ (.+)$`).FindAllStringSubmatch(text, -1) {
		kept := regexp.MustCompile(`[^a-z0-9 _-]`).ReplaceAllString(strings.ToLower(m[1]), "")
		all = append(all, "#"+strings.ReplaceAll(kept, " ", "-"))
	}
	return all
}

// madeUp are the examples of CONTRIBUTING.md, whose files are not there.
var madeUp = regexp.MustCompile(`sailor|catalogue\.(go|txtar)`)

// A file, folder or test that a page names in backticks exists.
func TestFilesThatThePagesNameExist(t *testing.T) {
	named := regexp.MustCompile("`((?:cmd|launcher|strategy|recipes|examples|docs|test|\\.ci)/[\\w./*-]+)`")
	seen, tests := 0, allTests(t)
	for _, name := range pages(t) {
		if name == "CHANGELOG.md" {
			continue // it tells of the past
		}
		for _, m := range regexp.MustCompile("`(Test\\w+)`").FindAllStringSubmatch(testenv.Page(t, name), -1) {
			if tests[m[1]] == nil {
				t.Errorf("%s names %s, which is no test", name, m[1])
			}
		}
		for _, m := range named.FindAllStringSubmatch(testenv.Page(t, name), -1) {
			if seen++; madeUp.MatchString(m[1]) {
				continue
			}
			if found, err := filepath.Glob(filepath.Join(testenv.Root(t), m[1])); err != nil || len(found) == 0 {
				t.Errorf("%s names %s, which is not there", name, m[1])
			}
		}
	}
	if seen < 20 {
		t.Errorf("only %d names were looked at", seen)
	}
}

// allTests returns the files of all tests, by the test's name.
func allTests(t *testing.T) map[string][]string {
	t.Helper()
	names := map[string][]string{}
	for _, p := range packages(t) {
		files, err := filepath.Glob(filepath.Join(p.Dir, "*_test.go"))
		testenv.Check(t, err)
		for _, file := range files {
			for _, name := range declared(t, file) {
				if strings.HasPrefix(name, "Test") {
					names[name] = append(names[name], file)
				}
			}
		}
	}
	return names
}

// mostHops is how many files a reader may have to open to follow one log line to
// the next attempt.
const mostHops = 14

// section is what a page has below a headline.
func section(t *testing.T, name, headline string) string {
	t.Helper()
	_, text, found := strings.Cut(testenv.Page(t, name), "\n## "+headline+"\n")
	if !found {
		t.Fatalf("%s has no section %q", name, headline)
	}
	text, _, _ = strings.Cut(text, "\n## ")
	return text
}

// The loop that ARCHITECTURE.md quotes is the loop: what it leaves out is marked.
func TestTheWayRoundTheLoopIsQuoted(t *testing.T) {
	_, quoted, found := strings.Cut(section(t, "ARCHITECTURE.md", "The loop"), "```go\n")
	quoted, _, closed := strings.Cut(quoted, "```")
	if !found || !closed {
		t.Fatal("ARCHITECTURE.md does not quote the loop")
	}
	rest, lines := testenv.Page(t, "launcher/launcher.go"), 0
	for line := range strings.Lines(quoted) {
		line = strings.TrimSpace(line)
		if line == "…" {
			continue
		}
		_, after, there := strings.Cut(rest, line+"\n")
		if !there {
			t.Fatalf("ARCHITECTURE.md quotes %q, and launcher/launcher.go does not have it there", line)
		}
		rest = after
		lines++
	}
	if lines < 10 {
		t.Errorf("only %d lines of the loop are quoted", lines)
	}
}

// The packages in ARCHITECTURE.md are those of the table mayImport, each once.
func TestRoomsAreDescribed(t *testing.T) {
	described := map[string]int{}
	for _, m := range regexp.MustCompile("(?m)^- `([\\w/]+)` ").FindAllStringSubmatch(section(t, "ARCHITECTURE.md", "The packages"), -1) {
		described[m[1]]++
	}
	for room := range mayImport {
		if described[room] != 1 {
			t.Errorf("ARCHITECTURE.md, The packages: %s has %d lines, want one: - `%s` does what", room, described[room], room)
		}
	}
	for room := range described {
		if _, known := mayImport[room]; !known {
			t.Errorf("ARCHITECTURE.md describes %s, which is not in the table of cmd/gpurun/arch_test.go", room)
		}
	}
}

// The way of a log line in ARCHITECTURE.md is short; each of its files has the
// function that it names, and is in the same package as the one before, or their
// packages know each other.
func TestTheWayOfALogLine(t *testing.T) {
	var hops []string
	text := section(t, "ARCHITECTURE.md", "How a log line becomes the next attempt")
	for _, m := range regexp.MustCompile("(?m)^(\\d+)\\. `([\\w/]+\\.go)`: `([\\w.]+)` .+\\.$").FindAllStringSubmatch(text, -1) {
		hops = append(hops, m[2])
		if m[1] != strconv.Itoa(len(hops)) {
			t.Errorf("hop %d has the number %s", len(hops), m[1])
		}
		if !slices.Contains(declared(t, filepath.Join(testenv.Root(t), m[2])), m[3]) {
			t.Errorf("hop %s: %s does not declare %s", m[1], m[2], m[3])
		}
	}
	if all := regexp.MustCompile(`(?m)^\d+\.`).FindAllString(text, -1); len(all) != len(hops) {
		t.Errorf("of %d hops only %d have the form N. `dir/file.go`: `function` does what.", len(all), len(hops))
	}
	if len(hops) < 8 || len(hops) > mostHops {
		t.Fatalf("%d hops, want 8 to %d", len(hops), mostHops)
	}
	imports := map[string][]string{}
	for _, p := range packages(t) {
		for _, path := range p.Imports {
			if room, ours := strings.CutPrefix(path, module); ours {
				imports[p.room()] = append(imports[p.room()], room)
			}
		}
	}
	for i := 1; i < len(hops); i++ {
		a, b := path.Dir(hops[i-1]), path.Dir(hops[i])
		if a != b && !slices.Contains(imports[a], b) && !slices.Contains(imports[b], a) {
			t.Errorf("hop %d, from %s to %s: neither package imports the other", i, hops[i-1], hops[i])
		}
	}
}

// declared lists what a file declares at its top level: functions, types, variables
// and constants by their names, methods as Type.Method and fields as Type.Field.
func declared(t *testing.T, file string) []string {
	t.Helper()
	f, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
	testenv.Check(t, err)
	var names []string
	for _, d := range f.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			names = append(names, receiver(d)+d.Name.Name)
		case *ast.GenDecl:
			for _, spec := range d.Specs {
				names = append(names, specified(spec)...)
			}
		}
	}
	return names
}

// receiver is the type of a method with a dot, empty for a function.
func receiver(f *ast.FuncDecl) string {
	if f.Recv == nil {
		return ""
	}
	of := f.Recv.List[0].Type
	if pointer, ok := of.(*ast.StarExpr); ok {
		of = pointer.X
	}
	if name, ok := of.(*ast.Ident); ok {
		return name.Name + "."
	}
	return ""
}

// specified lists what one specification declares.
func specified(spec ast.Spec) (names []string) {
	switch spec := spec.(type) {
	case *ast.ValueSpec:
		for _, name := range spec.Names {
			names = append(names, name.Name)
		}
	case *ast.TypeSpec:
		names = append(names, spec.Name.Name)
		var of *ast.FieldList
		switch body := spec.Type.(type) {
		case *ast.StructType:
			of = body.Fields
		case *ast.InterfaceType:
			of = body.Methods
		}
		if of != nil {
			for _, field := range of.List {
				for _, name := range field.Names {
					names = append(names, spec.Name.Name+"."+name.Name)
				}
			}
		}
	}
	return names
}

// The glossary explains words by what users see, each once; it names no symbol of the code.
func TestGlossaryIsForUsers(t *testing.T) {
	page := testenv.Page(t, "docs/glossary.md")
	words := map[string]bool{}
	for _, row := range regexp.MustCompile(`(?m)^\| ([^|]+) \| ([^|]+) \| ([^|]+) \|$`).FindAllStringSubmatch(page, -1) {
		if row[1] != "word" && words[row[1]] {
			t.Errorf("docs/glossary.md has %q twice", row[1])
		}
		words[row[1]] = true
	}
	if len(words) < 30 || len(words) != len(regexp.MustCompile(`(?m)^\| [^-]`).FindAllString(page, -1))-2 { // three tables, one headline
		t.Errorf("the glossary has %d words", len(words))
	}
	if symbol := regexp.MustCompile("`[a-z]+\\.[A-Z]\\w*").FindString(page); symbol != "" {
		t.Errorf("docs/glossary.md names a symbol of the code: %s", symbol)
	}
}

// ARCHITECTURE.md names for each of its words where it is in the code, and it is there.
func TestGlossary(t *testing.T) {
	known := map[string]bool{} // "strategy.Evidence.Add"
	for _, p := range packages(t) {
		for _, name := range slices.Concat(p.GoFiles, p.CgoFiles) {
			for _, id := range declared(t, filepath.Join(p.Dir, name)) {
				known[path.Base(p.ImportPath)+"."+id] = true
			}
		}
	}
	rows := regexp.MustCompile(`(?m)^\| ([^|]+) \| ([^|]+) \| ([^|]*) \|$`).FindAllStringSubmatch(section(t, "ARCHITECTURE.md", "The words of the code"), -1)
	words := map[string]bool{}
	for _, row := range rows {
		word := strings.TrimSpace(row[1])
		if word == "word" {
			continue
		}
		if words[word] {
			t.Errorf("ARCHITECTURE.md has %q twice", word)
		}
		words[word] = true
		places := regexp.MustCompile("`([\\w.]+)`").FindAllStringSubmatch(row[3], -1)
		if len(places) == 0 {
			t.Errorf("ARCHITECTURE.md does not say where %q is in the code", word)
		}
		for _, m := range places {
			if !known[m[1]] {
				t.Errorf("ARCHITECTURE.md: %q is said to be %s, which is not declared", word, m[1])
			}
		}
	}
	if len(words) < 20 {
		t.Errorf("the glossary has %d words", len(words))
	}
	for old := range oldWords {
		if words[old] {
			t.Errorf("ARCHITECTURE.md has the old word %q", old)
		}
	}
}

// The verbs are in README.md, each is tried by a script, and has --json.
func TestVerbsAreDocumented(t *testing.T) {
	scripts, err := filepath.Glob(filepath.Join("testdata", "script", "*.txtar"))
	testenv.Check(t, err)
	var tried strings.Builder
	for _, name := range scripts {
		text, err := os.ReadFile(name)
		testenv.Check(t, err)
		tried.Write(text)
	}
	for _, verb := range newApp(stdio{}).Commands {
		if !strings.Contains(testenv.Page(t, "README.md"), "| `gpurun "+verb.Name) && verb.Name != "run" && verb.Name != "help" {
			t.Errorf("gpurun %s is not in the table of verbs in README.md", verb.Name)
		}
		if !strings.Contains(tried.String(), "gpurun "+verb.Name) {
			t.Errorf("gpurun %s: no script in cmd/gpurun/testdata/script runs it", verb.Name)
		}
		hasJSON := slices.ContainsFunc(verb.Flags, func(f cli.Flag) bool { return slices.Contains(f.Names(), "json") })
		if !hasJSON && !verb.SkipFlagParsing && verb.Name != "help" {
			t.Errorf("gpurun %s has no --json: give its Flags a jsonFlag()", verb.Name)
		}
		if _, err := os.Stat(verb.Name + ".go"); err != nil {
			t.Errorf("gpurun %s has no file of its own: cmd/gpurun/%s.go", verb.Name, verb.Name)
		}
	}
}

// The manual lists every cause and no other.
func TestCausesAreDocumented(t *testing.T) {
	named := map[string]bool{}
	for _, row := range regexp.MustCompile("(?m)^\\| (`.+) \\| .+ \\| .+ \\|$").FindAllStringSubmatch(testenv.Page(t, "docs/causes.md"), -1) {
		for _, m := range regexp.MustCompile("`([a-z-]+)`").FindAllStringSubmatch(row[1], -1) {
			named[m[1]] = true
		}
	}
	for _, c := range cause.All() {
		if !named[string(c.Code)] {
			t.Errorf("docs/causes.md has no line for `%s`", c.Code)
		}
		delete(named, string(c.Code))
	}
	for code := range named {
		t.Errorf("docs/causes.md has %s, which is no cause", code)
	}
}

// Every key that package job reads from a train.toml is in the manual.
func TestKeysAreDocumented(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(testenv.Root(t), "launcher", "job", "*.go"))
	testenv.Check(t, err)
	manual, seen := testenv.Page(t, "docs/config.md"), 0
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		text, err := os.ReadFile(name)
		testenv.Check(t, err)
		for _, m := range regexp.MustCompile(`\bt\.[a-zA-Z]+\("([a-z_]+)"`).FindAllStringSubmatch(string(text), -1) {
			seen++
			if !regexp.MustCompile(`\b` + m[1] + `\b`).MatchString(manual) {
				t.Errorf("docs/config.md does not have the key %s, which %s reads", m[1], filepath.Base(name))
			}
		}
	}
	if seen < 20 {
		t.Errorf("only %d keys were looked at", seen)
	}
}

// docs/README.md has a line for each page of the manual, and README.md leads there.
func TestThePagesAreInTheIndex(t *testing.T) {
	index := testenv.Page(t, "docs/README.md")
	for _, name := range pages(t) {
		link := "](../" + name + ")"
		if below, ok := strings.CutPrefix(name, "docs/"); ok {
			link = "](" + below + ")"
		}
		if name != "docs/README.md" && !strings.Contains(index, link) {
			t.Errorf("docs/README.md: no link to %s", name)
		}
	}
	if !strings.Contains(testenv.Page(t, "README.md"), "](docs/README.md)") {
		t.Error("README.md does not lead to docs/README.md")
	}
}

// oldWords are names that were invented here and have been replaced by those of
// the field: ARCHITECTURE.md.
var oldWords = map[string]string{
	"sighting": "finding", "outlook": "failure detector", "ledger": "event log", "remains": "artifacts", "slay": "kill",
}

// What a newcomer reads has the field's words.
func TestPlainWords(t *testing.T) {
	seen := 0
	err := filepath.WalkDir(testenv.Root(t), func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() {
			if entry.Name() == "testdata" || strings.HasPrefix(entry.Name(), ".") && entry.Name() != ".." && entry.Name() != ".ci" || entry.Name() == "shared" {
				return filepath.SkipDir
			}
			return nil
		}
		if filepath.Ext(name) != ".go" && filepath.Ext(name) != ".md" || entry.Name() == "docs_test.go" {
			return nil
		}
		text, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		seen++
		for old, plain := range oldWords {
			if at := wordIn(string(text), old); at > 0 {
				t.Errorf("%s:%d: %q: the word is %q", name, at, old, plain)
			}
		}
		return nil
	})
	testenv.Check(t, err)
	if seen < 200 {
		t.Errorf("only %d files were looked at", seen)
	}
}

// dialect are words of the code, and phrases that users had to read twice. docs/glossary.md has the words for users.
var dialect = regexp.MustCompile(`(?i)\b(rungs?|instants?|climb(ed|s)?|probes?|riders?|told|tells?|whoever|nobody|anew|exhausted|hushed|outlived|of (its|their) own|all the same|in words|go(es)? on|beside|gives? up|stands (in|at)|rides along)\b`)

// inDialect returns the lines of a page with such words, outside of code and links.
func inDialect(page string) (found []string) {
	page = regexp.MustCompile("(?ms)^```.*?^```|`[^`\n]*`|\\]\\([^)\n]*\\)").ReplaceAllStringFunc(page, func(code string) string { return strings.Repeat("\n", strings.Count(code, "\n")) })
	for i, line := range strings.Split(page, "\n") {
		if word := dialect.FindString(line); word != "" {
			found = append(found, fmt.Sprintf("%d: %s", i+1, word))
		}
	}
	return found
}

// README.md and the manual have the words of docs/glossary.md.
func TestPagesHaveTheWordsOfUsers(t *testing.T) {
	for _, name := range commandPages(t) {
		if name == "docs/json.md" {
			continue // it has the names of fields
		}
		for _, where := range inDialect(testenv.Page(t, name)) {
			t.Errorf("%s:%s", name, where)
		}
	}
	if got := inDialect("the `rung` of\n```sh\ntold\n```\n[x](tells.md), who told it\n\nis a Rung"); !slices.Equal(got, []string{"5: told", "7: Rung"}) {
		t.Errorf("found %q", got)
	}
}

// The messages that gpurun prints have the words of docs/glossary.md.
func TestMessagesHaveTheWordsOfUsers(t *testing.T) {
	names := regexp.MustCompile(`"[^"]*"|\w+\.\w+|exhausted, stopped`) // of keys and outcomes
	seen := 0
	for _, p := range packages(t) {
		for _, name := range p.GoFiles {
			if strings.HasPrefix(name, "pattern_") {
				continue // it has the messages of others
			}
			texts, err := literalTexts(filepath.Join(p.Dir, name))
			testenv.Check(t, err)
			for _, text := range texts {
				if !strings.Contains(text, " ") {
					continue
				}
				seen++
				if word := dialect.FindString(names.ReplaceAllString(text, "")); word != "" {
					t.Errorf("%s: %s: %q", name, word, text)
				}
			}
		}
	}
	if seen < 1000 {
		t.Errorf("only %d texts were looked at", seen)
	}
}

// wordIn returns the line of a word, alone or within a name; 0 for none.
func wordIn(text, word string) int {
	if !strings.Contains(strings.ToLower(text), word) {
		return 0
	}
	re := regexp.MustCompile(fmt.Sprintf(`(?i:(^|[^a-z])%s)|%s`, word, strings.ToUpper(word[:1])+word[1:]))
	if word == "remains" {
		re = regexp.MustCompile(`type remains|\bremains\{|\[\]remains|[a-z]Remains|Remains[({]`) // the verb is a good word
	}
	at := re.FindStringIndex(text)
	if at == nil {
		return 0
	}
	return 1 + strings.Count(text[:at[0]], "\n")
}

// TestWordsAreFound: the search above finds a word, alone or in a name, and leaves
// other words alone.
func TestWordsAreFound(t *testing.T) {
	for text, want := range map[string]int{
		"a\nthe Outlook says": 2, "newOutlook()": 1, "hyperledger": 0, "the identity remains, whoever counts": 0, "x := remains{}": 1,
	} {
		got := 0
		for old := range oldWords {
			got = max(got, wordIn(text, old))
		}
		if got != want {
			t.Errorf("%q: an old word in line %d, want %d", text, got, want)
		}
	}
}
