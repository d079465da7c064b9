package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

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

// The train.toml file of the README can be run, and the keys that the manual says
// are defaults are.
func TestDocumentedTrainFiles(t *testing.T) {
	load := func(text string) *job.Job {
		t.Helper()
		dir := t.TempDir()
		for name, text := range map[string]string{"train.py": "", "train.toml": text} {
			if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		path := filepath.Join(dir, "train.toml")
		j, _, err := job.Open(t.Context(), []string{path}, os.Environ(), dir)
		if err != nil {
			t.Fatal(err)
		}
		return j
	}
	load(tomlBlock(t, "README.md"))
	said := load(strings.Replace(tomlBlock(t, filepath.Join("docs", "train-toml.md")), "[job]", "[job]\nscript = \"train.py\"", 1))
	bare := load("[job]\nscript = \"train.py\"\n")
	if diff := cmp.Diff(bare.Launch, said.Launch); diff != "" {
		t.Errorf("[launch]: -default +manual\n%s", diff)
	}
	said.Recovery.Never, bare.Recovery.Never = nil, nil
	if diff := cmp.Diff(bare.Recovery, said.Recovery); diff != "" {
		t.Errorf("[recovery]: -default +manual\n%s", diff)
	}
	if bare.Name != said.Name || bare.Recipe != said.Recipe {
		t.Errorf("[job]: %q, %q; by default %q, %q", said.Name, said.Recipe, bare.Name, bare.Recipe)
	}
}
