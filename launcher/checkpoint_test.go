package launcher

import (
	"archive/zip"
	"os"
	"path/filepath"
	"testing"
	"time"
)

func TestNewestCheckpoint(t *testing.T) {
	start := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	type file struct {
		name  string
		after time.Duration // of writing, since the run's start
		cut   bool
		text  string
	}
	tests := []struct {
		name  string
		files []file
		glob  string
		want  string
	}{
		{"numbers are numbers", []file{{name: "out/ckpt-90.pt", after: 2}, {name: "out/ckpt-100.pt", after: 1}}, "out/ckpt-*", "out/ckpt-100.pt"},
		{"an older run's are not this run's", []file{{name: "out/ckpt-500.pt", after: -time.Hour}, {name: "out/ckpt-20.pt", after: time.Minute}}, "out/ckpt-*", "out/ckpt-20.pt"},
		{"a torn archive is none", []file{{name: "out/ckpt-1.pt", after: 1}, {name: "out/ckpt-2.pt", after: 2, cut: true}}, "out/ckpt-*", "out/ckpt-1.pt"},
		{"an empty file is none", []file{{name: "out/ckpt-2.bin", after: 2, text: "-"}}, "out/ckpt-*", ""},
		{"a folder that is being written", []file{{name: "out/checkpoint-3/model.bin", after: 1, text: "x"}, {name: "out/checkpoint-4/model.bin", after: 1, text: "x"}, {name: "out/checkpoint-4/checkpoint-is-incomplete.txt", after: 1, text: "x"}}, "out/checkpoint-*", "out/checkpoint-3"},
		{"no match", nil, "out/ckpt-*", ""},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			dir := t.TempDir()
			for _, f := range test.files {
				path := filepath.Join(dir, f.name)
				if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
					t.Fatal(err)
				}
				switch f.text {
				case "":
					archive(t, path, f.cut)
				case "-":
					writeFile(t, path, "")
				default:
					writeFile(t, path, f.text)
				}
				at := start.Add(f.after)
				if err := os.Chtimes(path, at, at); err != nil {
					t.Fatal(err)
				}
			}
			got, err := NewestCheckpoint(dir, test.glob, start)
			if err != nil || got != test.want {
				t.Errorf("got %q, %v; want %q", got, err, test.want)
			}
		})
	}
}

func writeFile(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// archive writes a zip file as torch.save does, whole or cut off in the middle.
func archive(t *testing.T, path string, cut bool) {
	t.Helper()
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	z := zip.NewWriter(f)
	w, err := z.Create("archive/data.pkl")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write(make([]byte, 4096)); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	if cut {
		if err := f.Truncate(60); err != nil {
			t.Fatal(err)
		}
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
}
