package test

import (
	"bytes"
	"crypto/sha256"
	"debug/buildinfo"
	"debug/elf"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gpurun/gpurun/launcher/ranks"
	"github.com/gpurun/gpurun/test/testenv"
)

// machines are the architectures of the packages, as wheels spell them.
var machines = map[string]struct {
	elf  elf.Machine
	arch string // as Go spells it
}{
	"x86_64":  {elf.EM_X86_64, "amd64"},
	"aarch64": {elf.EM_AARCH64, "arm64"},
}

// TestDist checks the output of make dist, which runs it.
func TestDist(t *testing.T) {
	dist := os.Getenv("GPURUN_DIST")
	if dist == "" {
		t.Skip("GPURUN_DIST names no folder that make dist made; make dist runs this")
	}
	for machine := range machines {
		wheels, err := filepath.Glob(filepath.Join(dist, "*_"+machine+".whl"))
		if err != nil || len(wheels) != 1 {
			t.Fatalf("wheels for %s: %v, %v", machine, wheels, err)
		}
		inside := checkWheel(t, wheels[0], machine)
		plain, err := os.ReadFile(filepath.Join(dist, "gpurun-linux-"+machine))
		testenv.Check(t, err)
		if !bytes.Equal(inside, plain) {
			t.Errorf("the wheel for %s and the plain binary differ", machine)
		}
		if len(plain) > largestBinary {
			t.Errorf("%s: the binary has %d bytes, want at most %d", machine, len(plain), largestBinary)
		}
		for _, wrong := range runsAnywhere(t, plain, machine) {
			t.Errorf("%s: %s", machine, wrong)
		}
	}
	checkSums(t, dist)
	if modules, err := filepath.Glob(filepath.Join(dist, "gpurun-*.lua")); err != nil || len(modules) != 1 {
		t.Errorf("modules %v, %v", modules, err)
	}
}

// Lmod loads the environment module under the version of its name. Without Lmod, Lua parses the module.
func TestDistModule(t *testing.T) {
	text, err := os.ReadFile("../.ci/dist/module.lua")
	testenv.Check(t, err)
	dir := t.TempDir()
	path := filepath.Join(dir, "gpurun", "1.2.3.lua")
	text = bytes.Replace(text, []byte(`"/opt/apps/gpurun"`), []byte(strconv.Quote(dir)), 1)
	testenv.Check(t, errors.Join(os.Mkdir(filepath.Dir(path), 0o755), os.WriteFile(path, text, 0o644)))
	const lmod = "/usr/share/lmod/lmod/libexec/lmod"
	if _, err := os.Stat(lmod); err == nil {
		cmd := exec.Command("sh", "-c", `eval "$("$0" bash load gpurun/1.2.3)"; echo "$PATH"; eval "$("$0" bash unload gpurun)"; echo "$PATH"`, lmod)
		cmd.Env = []string{"MODULEPATH=" + dir, "PATH=/usr/bin:/bin", "HOME=" + dir}
		out, err := cmd.Output()
		if want := dir + "/1.2.3/bin:/usr/bin:/bin\n/usr/bin:/bin\n"; err != nil || string(out) != want {
			t.Errorf("%v: %q, want %q", err, out, want)
		}
		return
	}
	for _, lua := range []string{"luac", "luac5.4", "luac5.3", "luac5.1"} {
		if program, err := exec.LookPath(lua); err == nil {
			if out, err := exec.Command(program, "-p", path).CombinedOutput(); err != nil {
				t.Errorf("%v %s", err, out)
			}
			return
		}
	}
	t.Skip("there is no Lmod and no Lua")
}

// The checks can fail. A binary from go build is for one architecture, names the folder in which it was
// built, and, with cgo, needs this machine's glibc.
func TestDistChecksFindWhatIsWrong(t *testing.T) {
	binary, err := os.ReadFile(build(t))
	testenv.Check(t, err)
	if !ranks.HasNVML() {
		t.Skip("without cgo there is no dynamic binary to look at")
	}
	for machine, m := range machines {
		wrong := runsAnywhere(t, binary, machine)
		if !slices.Contains(wrong, "it was built with -trimpath=, not true") {
			t.Errorf("%s: a build without -trimpath passes: %q", machine, wrong)
		}
		other := slices.ContainsFunc(wrong, func(w string) bool { return strings.HasPrefix(w, "it is for EM_") })
		if other != (m.arch != runtime.GOARCH) {
			t.Errorf("a binary for %s, taken for %s: %q", runtime.GOARCH, machine, wrong)
		}
	}
	for version, want := range map[string]bool{"GLIBC_2.2.5": false, "GLIBC_2.17": false, "GLIBC_2.18": true, "GLIBC_2.34": true, "GLIBC_ABI_DT_RELR": true, "GCC_3.0": true} {
		if newer(version) != want {
			t.Errorf("%s is newer than glibc 2.17: %t, want %t", version, !want, want)
		}
	}
}

// checkSums checks that every file of dist is in SHA256SUMS, with the right sum.
func checkSums(t *testing.T, dist string) {
	t.Helper()
	var want strings.Builder
	entries, err := os.ReadDir(dist)
	testenv.Check(t, err)
	for _, e := range entries {
		if e.Name() == "SHA256SUMS" {
			continue
		}
		text, err := os.ReadFile(filepath.Join(dist, e.Name()))
		testenv.Check(t, err)
		sum := sha256.Sum256(text)
		fmt.Fprintf(&want, "%s  %s\n", hex.EncodeToString(sum[:]), e.Name())
	}
	got, err := os.ReadFile(filepath.Join(dist, "SHA256SUMS"))
	testenv.Check(t, err)
	if diff := cmp.Diff(want.String(), string(got)); diff != "" {
		t.Errorf("SHA256SUMS: -want +got\n%s", diff)
	}
}

// runsAnywhere returns why a binary would not run, with NVML, on any Linux of that architecture with glibc
// 2.17 or newer.
func runsAnywhere(t *testing.T, binary []byte, machine string) (wrong []string) {
	t.Helper()
	f, err := elf.NewFile(bytes.NewReader(binary))
	testenv.Check(t, err)
	if f.Machine != machines[machine].elf {
		wrong = append(wrong, "it is for "+f.Machine.String())
	}
	wrong = append(wrong, builtAs(t, binary, machine)...)
	needed, err := f.ImportedLibraries()
	testenv.Check(t, err)
	for _, library := range needed {
		if !slices.Contains([]string{"libc.so.6", "libdl.so.2", "libpthread.so.0", "libresolv.so.2"}, library) {
			wrong = append(wrong, "it needs "+library)
		}
	}
	versions, err := f.DynamicVersionNeeds()
	if err != nil || len(versions) == 0 {
		t.Fatalf("versions %v, %v", versions, err)
	}
	for _, library := range versions {
		for _, need := range library.Needs {
			if newer(need.Dep) {
				wrong = append(wrong, "it needs "+library.Name+" with "+need.Dep)
			}
		}
	}
	return append(wrong, nvmlIsLazy(t, f)...)
}

// builtAs returns wrong settings of the build.
func builtAs(t *testing.T, binary []byte, machine string) (wrong []string) {
	t.Helper()
	info, err := buildinfo.Read(bytes.NewReader(binary))
	testenv.Check(t, err)
	settings := map[string]string{}
	for _, s := range info.Settings {
		settings[s.Key] = s.Value
	}
	for key, want := range map[string]string{"CGO_ENABLED": "1", "GOOS": "linux", "GOARCH": machines[machine].arch, "-trimpath": "true"} {
		if settings[key] != want {
			wrong = append(wrong, fmt.Sprintf("it was built with %s=%s, not %s", key, settings[key], want))
		}
	}
	return wrong
}

// newer reports whether a version of a symbol came after glibc 2.17.
func newer(version string) bool {
	m := regexp.MustCompile(`^GLIBC_2\.(\d+)(\.\d+)?$`).FindStringSubmatch(version)
	if m == nil {
		return true
	}
	minor, err := strconv.Atoi(m[1])
	return err != nil || minor > 17
}

// nvmlIsLazy returns why NVML is missing in the binary, or why gpurun would not start on a machine without
// NVML. The functions must not belong to a library that the binary names: they are looked up when called,
// after the library was loaded.
func nvmlIsLazy(t *testing.T, f *elf.File) (wrong []string) {
	t.Helper()
	symbols, err := f.DynamicSymbols()
	testenv.Check(t, err)
	found := false
	for _, s := range symbols {
		found = found || s.Name == "nvmlInit_v2" && s.Section == elf.SHN_UNDEF
		if s.Section == elf.SHN_UNDEF && s.Library == "" && elf.ST_BIND(s.Info) != elf.STB_WEAK && !strings.HasPrefix(s.Name, "nvml") {
			wrong = append(wrong, s.Name+" is in none of its libraries")
		}
	}
	if !found {
		wrong = append(wrong, "NVML is not built in")
	}
	for tag, now := range map[elf.DynTag]uint64{elf.DT_FLAGS: uint64(elf.DF_BIND_NOW), elf.DT_FLAGS_1: uint64(elf.DF_1_NOW)} {
		values, err := f.DynValue(tag)
		testenv.Check(t, err)
		if slices.ContainsFunc(values, func(v uint64) bool { return v&now != 0 }) {
			wrong = append(wrong, "NVML's functions are looked up at the start")
		}
	}
	if now, err := f.DynValue(elf.DT_BIND_NOW); err != nil || len(now) > 0 {
		wrong = append(wrong, fmt.Sprintf("NVML's functions are looked up at the start: %v", err))
	}
	return wrong
}

// The image's binary is copied into older images. So it is built like the packages, against glibc 2.17, not
// with the image's C compiler.
func TestContainerfileBuildsAsDistDoes(t *testing.T) {
	text, err := os.ReadFile("../.ci/dist/Containerfile")
	testenv.Check(t, err)
	if !bytes.Contains(text, []byte("\n    python3 .ci/dist/dist.py binary /usr/bin/gpurun")) || bytes.Contains(text, []byte("go build")) {
		t.Errorf("the Containerfile does not build with dist.py:\n%s", text)
	}
}
