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

// The train.toml files of the README can be run, and those of its keys that are
// said to be defaults are.
func TestREADMEsTrainFiles(t *testing.T) {
	page, err := os.ReadFile(filepath.Join("..", "..", "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	blocks := regexp.MustCompile("(?s)```toml\n(.*?)```").FindAllStringSubmatch(string(page), -1)
	if len(blocks) != 2 {
		t.Fatalf("%d blocks of TOML, want 2", len(blocks))
	}
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
	load(blocks[0][1])
	said := load(strings.Replace(blocks[1][1], "[job]", "[job]\nscript = \"train.py\"", 1))
	bare := load("[job]\nscript = \"train.py\"\n")
	if diff := cmp.Diff(bare.Launch, said.Launch); diff != "" {
		t.Errorf("[launch]: -default +README\n%s", diff)
	}
	said.Recovery.Never, bare.Recovery.Never = nil, nil
	if diff := cmp.Diff(bare.Recovery, said.Recovery); diff != "" {
		t.Errorf("[recovery]: -default +README\n%s", diff)
	}
	if bare.Name != said.Name || bare.Recipe != said.Recipe {
		t.Errorf("[job]: %q, %q; by default %q, %q", said.Name, said.Recipe, bare.Name, bare.Recipe)
	}
}
