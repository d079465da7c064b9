// Package testenv sets up the environment for tests of several packages.
package testenv

import (
	"cmp"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"syscall"
	"testing"
)

// Isolated are the tests of a package, isolated from the user's configuration. They share a folder, which is
// removed afterwards.
type Isolated struct {
	*testing.M
	Folder string
}

// Isolate sets the environment of this process for isolated tests.
func Isolate(m *testing.M) Isolated {
	dir, err := os.MkdirTemp("", "gpurun-test-")
	if err != nil {
		panic(err)
	}
	if cache, err := os.UserCacheDir(); err == nil && os.Getenv("GOCACHE") == "" {
		os.Setenv("GOCACHE", filepath.Join(cache, "go-build")) // where go keeps it: a test that builds need not compile all
	}
	os.Setenv("XDG_CONFIG_HOME", os.DevNull)
	os.Setenv("XDG_CONFIG_DIRS", os.DevNull)
	os.Setenv("XDG_STATE_HOME", filepath.Join(dir, "state"))
	os.Setenv("XDG_CACHE_HOME", filepath.Join(dir, "cache"))
	if signal.Ignored(syscall.SIGHUP) { // under nohup; after exec, a caught signal has its default action again
		signal.Notify(make(chan os.Signal, 1), syscall.SIGHUP)
	}
	return Isolated{m, dir}
}

// Run runs the tests, and then ends and removes shared resources.
func (m Isolated) Run() int {
	defer os.RemoveAll(m.Folder)
	defer stopWarm()
	return m.M.Run()
}

// T is what Check needs of a test, also of a random one.
type T interface {
	Helper()
	Fatal(args ...any)
}

// Check ends a test at an error.
func Check(t T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// Python returns any Python 3, for scripts that need no packages. Without one the test is skipped.
func Python(t testing.TB) string {
	t.Helper()
	p, err := exec.LookPath(cmp.Or(os.Getenv("GPURUN_TEST_PYTHON"), "python3"))
	if err != nil {
		t.Skipf("GPURUN_TEST_PYTHON names no Python, nor is there one: %v", err)
	}
	return p
}

// Torch returns an interpreter that has PyTorch. Without one the test is skipped.
func Torch(t testing.TB) string {
	t.Helper()
	p := os.Getenv("GPURUN_TEST_PYTHON")
	if p == "" {
		t.Skip("GPURUN_TEST_PYTHON names no interpreter that has PyTorch; make test finds or installs one")
	}
	return p
}

// Root returns the folder of the repository.
func Root(t testing.TB) string {
	t.Helper()
	for dir := "."; ; dir = filepath.Join(dir, "..") {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir
		}
		if abs, err := filepath.Abs(dir); err != nil || abs == "/" {
			t.Fatal("no go.mod above this folder")
		}
	}
}

// Page returns the text of a file, by its path in the repository.
func Page(t testing.TB, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(Root(t), name))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
