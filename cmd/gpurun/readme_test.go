package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/gpurun/gpurun/launcher/job"
	"github.com/gpurun/gpurun/test/testenv"
)

// tomlBlock is the one block of TOML on a page.
func tomlBlock(t *testing.T, name string) string {
	t.Helper()
	page, err := os.ReadFile(filepath.Join("..", "..", name))
	if err != nil {
		t.Fatal(err)
	}
	blocks := regexp.MustCompile("(?s)```toml\n(.*?)```").FindAllStringSubmatch(string(page), -1)
	if len(blocks) != 1 {
		t.Fatalf("%s has %d blocks of TOML, want 1", name, len(blocks))
	}
	return blocks[0][1]
}

// The train.toml files of the README and of the manual can be run.
func TestDocumentedTrainFiles(t *testing.T) {
	for _, name := range []string{"README.md", filepath.Join("docs", "train-toml.md")} {
		dir := t.TempDir()
		for name, text := range map[string]string{"train.py": "", "train.toml": tomlBlock(t, name)} {
			if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if _, _, err := job.Open(t.Context(), []string{filepath.Join(dir, "train.toml")}, os.Environ(), dir); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// What a reader sees first of README.md fits on a terminal of 80 columns.
func TestREADMEBeginsNarrow(t *testing.T) {
	first, _, found := strings.Cut(testenv.Page(t, "README.md"), "\n## ")
	if n := strings.Count(first, "\n"); !found || n > 32 {
		t.Errorf("README.md has %d lines before its first headline, want 32 at most", n)
	}
	for line := range strings.Lines(first) {
		if n := utf8.RuneCountInString(strings.TrimSpace(line)); n > 80 {
			t.Errorf("README.md: %d columns: %s", n, line)
		}
	}
}

// make test installs no package of the system that the README does not name.
func TestPackagesForTestsAreInTheREADME(t *testing.T) {
	_, recipe, found := strings.Cut(testenv.Page(t, "Makefile"), "\ntest:")
	if !found {
		t.Fatal("the Makefile has no target test")
	}
	recipe, _, _ = strings.Cut(recipe, "\n\n")
	readme, seen := testenv.Page(t, "README.md"), 0
	// What is quoted is what a function is given.
	install := regexp.MustCompile(`(?:apt_install|apt-get\b.* install)((?: [\w$.+-]+)+)`)
	for _, script := range regexp.MustCompile(`\.ci/[\w.]+`).FindAllString(recipe, -1) {
		for line := range strings.Lines(testenv.Page(t, script)) {
			m := install.FindStringSubmatch(line)
			if m == nil || strings.Contains(line, "die ") { // which only names the command
				continue
			}
			for _, name := range strings.Fields(m[1]) {
				if strings.HasPrefix(name, "-") {
					continue // a flag
				}
				if seen++; !strings.Contains(readme, "`"+name+"`") {
					t.Errorf("%s installs %s, which README.md does not name", script, name)
				}
			}
		}
	}
	if seen < 3 {
		t.Errorf("only %d packages were looked at", seen)
	}
}
