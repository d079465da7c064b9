package show

import (
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/gpurun/gpurun/strategy"
)

// Above the folders of several jobs the runs of all of them are listed, each with its folder;
// from a folder that has runs of its own nobody looks further, and nothing is cleaned there.
func TestListAboveSeveralJobs(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	for i, folder := range []string{"vision", "text/gpt", "text/small/bert", "a/b/c/far", ".cache"} {
		writeRun(t, filepath.Join(folder, ".gpurun", "train", strconv.Itoa(i)), runBegan("train", i), finished(strategy.Trained, 0))
	}
	all, err := ListRuns(".")
	if err != nil || names(all) != "4 2 1 0" {
		t.Fatalf("%s, %v", names(all), err)
	}
	var out strings.Builder
	if err := WriteTable(&out, all, morning); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"\ntrain (text/small/bert)  2 ", "\ntrain (vision) "} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in\n%s", want, out.String())
		}
	}
	if r, err := FindRun(".", ""); err != nil || r.Name != "4" {
		t.Errorf("the newest is %s, %v", r.Name, err)
	}
	done, err := Cleaning{Asked: true, Now: morning.Add(99 * oneDay)}.Clean(".")
	if err != nil || len(done.Removed)+len(done.Kept) != 0 {
		t.Errorf("cleaned from above: %+v, %v", done, err)
	}
	writeRun(t, ".gpurun/own/9", runBegan("own", 9))
	if all, err := ListRuns("."); err != nil || names(all) != "9" {
		t.Errorf("%s, %v", names(all), err)
	}
}
