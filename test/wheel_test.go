package test

import (
	"archive/zip"
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gpurun/gpurun/test/testenv"
)

// checkWheel checks a wheel as pip does, and returns the binary in it.
func checkWheel(t *testing.T, path, machine string) (binary []byte) {
	t.Helper()
	wrong, binary := wheelIsSound(t, path, machine)
	for _, w := range wrong {
		t.Errorf("%s: %s", filepath.Base(path), w)
	}
	return binary
}

// wheelIsSound returns errors in a wheel: names, tags, the sums of its files.
func wheelIsSound(t *testing.T, path, machine string) (wrong []string, binary []byte) {
	t.Helper()
	bad := func(format string, args ...any) { wrong = append(wrong, fmt.Sprintf(format, args...)) }
	m := regexp.MustCompile(`^gpurun-([^-]+)-py3-none-(.+)\.whl$`).FindStringSubmatch(filepath.Base(path))
	if m == nil {
		t.Fatalf("%s is no name of a wheel", path)
	}
	version, info := m[1], "gpurun-"+m[1]+".dist-info/"
	if want := fmt.Sprintf("manylinux_2_17_%s.manylinux2014_%[1]s", machine); m[2] != want {
		bad("its platforms are %s, not %s", m[2], want)
	}
	archive, err := zip.OpenReader(path)
	testenv.Check(t, err)
	defer archive.Close()
	files, record := map[string]string{}, ""
	for _, f := range archive.File {
		text := unpacked(t, f)
		files[f.Name] = text
		sum := sha256.Sum256([]byte(text))
		if f.Name == info+"RECORD" {
			record += f.Name + ",,\n"
		} else {
			record += fmt.Sprintf("%s,sha256=%s,%d\n", f.Name, base64.RawURLEncoding.EncodeToString(sum[:]), len(text))
		}
		if want := os.FileMode(0o644); f.Mode() != want && f.Mode() != want|0o111 || (f.Mode()&0o111 != 0) != strings.HasSuffix(f.Name, ".data/scripts/gpurun") {
			bad("%s has mode %v", f.Name, f.Mode())
		}
	}
	if diff := cmp.Diff(record, files[info+"RECORD"]); diff != "" {
		bad("RECORD: -want +got\n%s", diff)
	}
	for platform := range strings.SplitSeq(m[2], ".") {
		if !strings.Contains(files[info+"WHEEL"], "\nTag: py3-none-"+platform+"\n") {
			bad("WHEEL has no tag for %s", platform)
		}
	}
	if !strings.Contains(files[info+"METADATA"], "\nName: gpurun\nVersion: "+version+"\n") {
		bad("METADATA is not of gpurun %s", version)
	}
	for _, name := range []string{"LICENSE", "THIRD-PARTY-LICENSES.txt"} {
		if files[info+"licenses/"+name] == "" {
			bad("there is no %s", name)
		}
	}
	return wrong, []byte(files["gpurun-"+version+".data/scripts/gpurun"])
}

func unpacked(t *testing.T, f *zip.File) string {
	t.Helper()
	r, err := f.Open()
	testenv.Check(t, err)
	defer r.Close()
	text, err := io.ReadAll(r)
	testenv.Check(t, err)
	return string(text)
}

// distPy runs the script that make dist runs.
func distPy(t *testing.T, args ...string) (stdout string, err error) {
	t.Helper()
	out, err := exec.Command(testenv.Python(t), append([]string{filepath.Join(testenv.Root(t), ".ci", "dist", "dist.py")}, args...)...).Output()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		err = fmt.Errorf("%w: %s", err, exit.Stderr)
	}
	return strings.TrimSpace(string(out)), err
}

// makeWheel puts a binary into a wheel in a new folder.
func makeWheel(t *testing.T, binary string) (path string) {
	t.Helper()
	folder := t.TempDir()
	if _, err := distPy(t, "wheel", binary, folder); err != nil {
		t.Fatal(err)
	}
	found, err := filepath.Glob(filepath.Join(folder, "*.whl"))
	if err != nil || len(found) != 1 {
		t.Fatalf("wheels %v, %v", found, err)
	}
	return found[0]
}

// anyBinary returns a small binary. Packing reads only the build information that the Go toolchain wrote into
// it.
func anyBinary(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range map[string]string{"go.mod": "module any\n", "main.go": "package main\n\nfunc main() {}\n"} {
		testenv.Check(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644))
	}
	cmd := exec.Command("go", "build", "-o", "any", ".")
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	return filepath.Join(dir, "any")
}

// A wheel has the unchanged binary, and the same binary makes the same bytes.
func TestWheel(t *testing.T) {
	binary := anyBinary(t)
	one, two := makeWheel(t, binary), makeWheel(t, binary)
	want := read(t, binary)
	if got := checkWheel(t, one, machine()); string(got) != want {
		t.Errorf("the wheel has another binary, of %d bytes instead of %d", len(got), len(want))
	}
	if filepath.Base(one) != filepath.Base(two) || read(t, one) != read(t, two) {
		t.Errorf("%s and %s differ", one, two)
	}
	for _, other := range slices.Sorted(maps.Keys(machines)) {
		if wrong, _ := wheelIsSound(t, one, other); (other == machine()) != (len(wrong) == 0) {
			t.Errorf("taken for one for %s: %q", other, wrong)
		}
	}
	changed := filepath.Join(t.TempDir(), filepath.Base(one))
	testenv.Check(t, os.WriteFile(changed, []byte(changeMetadata(t, one)), 0o644))
	if wrong, _ := wheelIsSound(t, changed, machine()); len(wrong) != 1 || !strings.HasPrefix(wrong[0], "RECORD: ") {
		t.Errorf("with a file that was changed: %q", wrong)
	}
}

// machine returns the architecture of this machine, as wheels spell it.
func machine() string {
	for name, m := range machines {
		if m.arch == runtime.GOARCH {
			return name
		}
	}
	return runtime.GOARCH
}

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	testenv.Check(t, err)
	return string(text)
}

// changeMetadata returns a wheel with one more byte in its METADATA.
func changeMetadata(t *testing.T, path string) string {
	t.Helper()
	archive, err := zip.OpenReader(path)
	testenv.Check(t, err)
	defer archive.Close()
	var out bytes.Buffer
	changed := zip.NewWriter(&out)
	for _, f := range archive.File {
		text := unpacked(t, f)
		if strings.HasSuffix(f.Name, "/METADATA") {
			text += "x"
		}
		header := zip.FileHeader{Name: f.Name}
		header.SetMode(f.Mode())
		w, err := changed.CreateHeader(&header)
		if err == nil {
			_, err = io.WriteString(w, text)
		}
		testenv.Check(t, err)
	}
	testenv.Check(t, changed.Close())
	return out.String()
}

// Go's versions, of releases and of commits between them, keep their order in the spelling of Python's
// packages.
func TestVersionsOfWheels(t *testing.T) {
	var spelt, want []string
	for _, v := range [][2]string{
		{"(devel)", "0.0.0.dev0"},
		{"v0.0.0-20261121201735-08f2ebd52e71", "0.0.0.dev20261121201735+g08f2ebd52e71"},
		{"v0.0.0-20261121201735-08f2ebd52e71+dirty", "0.0.0.dev20261121201735+g08f2ebd52e71.dirty"},
		{"v1.2.3", "1.2.3"},
		{"v1.2.3+dirty", "1.2.3+dirty"},
		{"v1.2.4-0.20261121201735-000000000012", "1.2.4.dev20261121201735+g000000000012"},
		{"v1.3.0-alpha2", "1.3.0a2"},
		{"v1.3.0-beta.10.0.20261121201735-08f2ebd52e71", "1.3.0b10.post1.dev20261121201735+g08f2ebd52e71"},
		{"v1.3.0-rc.1", "1.3.0rc1"},
		{"v1.3.0-rc.1.0.20261121201735-08f2ebd52e71", "1.3.0rc1.post1.dev20261121201735+g08f2ebd52e71"},
	} {
		spelt, want = append(spelt, v[0]), append(want, v[1])
	}
	got, err := distPy(t, append([]string{"version"}, spelt...)...)
	testenv.Check(t, err)
	if diff := cmp.Diff(want, strings.Fields(got)); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
	for _, other := range []string{"v1.3.0-nightly.20261121", "1.3.0"} {
		if got, err := distPy(t, "version", other); err == nil {
			t.Errorf("%s: %s, want an error", other, got)
		}
	}
}
