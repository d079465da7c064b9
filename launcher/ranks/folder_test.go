package ranks

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// Ranks of all nodes are found, whichever node started them; other folders are not.
func TestFolders(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"rank0", "rank1", "node-1/rank2", "node-1/rank3", "node-2/rank5", "node-2/rank1", "node-02/rank7", "rank08", "rank-1", "other"} {
		if err := os.MkdirAll(filepath.Join(dir, name), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	for link, to := range map[string]string{"rank4": "rank0", "node-3": "node-1"} {
		if err := os.Symlink(to, filepath.Join(dir, link)); err != nil {
			t.Fatal(err)
		}
	}
	want := map[int]string{0: "rank0", 1: "rank1", 2: "node-1/rank2", 3: "node-1/rank3", 5: "node-2/rank5"}
	got := LogFolders(dir)
	for rank, path := range want {
		want[rank] = filepath.Join(dir, path)
		if one := LogFolder(dir, rank); one != want[rank] {
			t.Errorf("rank %d: %s, want %s", rank, one, want[rank])
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if one := LogFolder(dir, 4); one != filepath.Join(dir, "rank4") {
		t.Errorf("a rank that is not there: %s", one)
	}
	if none := LogFolders(filepath.Join(dir, "nowhere")); len(none) != 0 {
		t.Errorf("of no attempt: %v", none)
	}
}
