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

// The train.toml files of README.md and of the manual can be run; those of a part have a job in front.
func TestDocumentedTrainFiles(t *testing.T) {
	seen := 0
	for _, name := range commandPages(t) {
		blocks, err := testenv.Blocks(testenv.Page(t, name))
		if err != nil {
			t.Fatal(err)
		}
		for _, b := range blocks {
			if b.Lang != "toml" || name == "docs/administration.md" { // which has configurations of a site
				continue
			}
			seen++
			if !strings.Contains(b.Text, "[job]") {
				b.Text = "[job]\nscript = \"train.py\"\n" + b.Text
			}
			dir := t.TempDir()
			writeFile(t, filepath.Join(dir, "train.py"), "")
			writeFile(t, filepath.Join(dir, "train.toml"), b.Text)
			if _, _, err := job.Open(t.Context(), []string{filepath.Join(dir, "train.toml")}, os.Environ(), dir); err != nil {
				t.Errorf("%s:%d: %v", name, b.Line, err)
			}
		}
	}
	if seen < 10 {
		t.Errorf("only %d files were found", seen)
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
