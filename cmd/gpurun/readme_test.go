package main

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/gpurun/gpurun/launcher/job"
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
