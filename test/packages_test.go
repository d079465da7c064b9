package test

import (
	"bytes"
	"compress/gzip"
	"debug/buildinfo"
	"encoding/json"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/gpurun/gpurun/test/testenv"
)

// These tests check the output of make dist, which runs them.

// distFile returns the only file of dist that matches a pattern.
func distFile(t *testing.T, pattern string) string {
	t.Helper()
	dist := os.Getenv("GPURUN_DIST")
	if dist == "" {
		t.Skip("GPURUN_DIST names no folder that make dist made; make dist runs this")
	}
	found, err := filepath.Glob(filepath.Join(dist, pattern))
	if err != nil || len(found) != 1 {
		t.Fatalf("%s: %v, %v", pattern, found, err)
	}
	return found[0]
}

// runTool runs a program that not every machine has.
func runTool(t *testing.T, name string, args ...string) string {
	t.Helper()
	if _, err := exec.LookPath(name); err != nil {
		t.Skipf("%s is not installed", name)
	}
	out, err := exec.Command(name, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", name, err, out)
	}
	return string(out)
}

// The debs have the binaries and their other files in Debian's folders.
func TestDistDeb(t *testing.T) {
	for machine, m := range machines {
		t.Run(machine, func(t *testing.T) {
			deb, to := distFile(t, "gpurun_*_"+m.arch+".deb"), t.TempDir()
			runTool(t, "dpkg-deb", "-x", deb, to)
			checkTree(t, to, machine, map[string]string{
				"bash": "usr/share/bash-completion/completions/gpurun", "zsh": "usr/share/zsh/vendor-completions/_gpurun", "fish": "usr/share/fish/vendor_completions.d/gpurun.fish",
			}, "usr/share/doc/gpurun/copyright", "usr/share/doc/gpurun/changelog.gz", "usr/share/doc/gpurun/THIRD-PARTY-LICENSES.txt")
			said := runTool(t, "dpkg-deb", "-f", deb)
			for _, line := range []string{"Package: gpurun", "Architecture: " + m.arch, "Depends: libc6 (>= 2.17)"} {
				if !strings.Contains(said, line+"\n") {
					t.Errorf("no %q in\n%s", line, said)
				}
			}
		})
	}
}

// Debian's checker finds no error in the deb.
func TestDistDebByLintian(t *testing.T) {
	deb := distFile(t, "gpurun_*_amd64.deb")
	out := runTool(t, "lintian", "--fail-on", "error", "--allow-root", deb)
	t.Log(out)
}

// The rpms have the same files in Fedora's folders.
func TestDistRPM(t *testing.T) {
	for machine := range machines {
		t.Run(machine, func(t *testing.T) {
			rpm := distFile(t, "gpurun-*."+machine+".rpm")
			listed := strings.Fields(runTool(t, "rpm", "-qpl", rpm))
			for _, want := range []string{
				"/usr/bin/gpurun", "/usr/share/man/man1/gpurun.1.gz", "/usr/share/man/man1/gpurun-plan.1.gz", "/usr/share/bash-completion/completions/gpurun",
				"/usr/share/zsh/site-functions/_gpurun", "/usr/share/fish/vendor_completions.d/gpurun.fish", "/usr/share/licenses/gpurun/LICENSE",
				"/usr/share/licenses/gpurun/THIRD-PARTY-LICENSES.txt", "/usr/share/doc/gpurun/docs/config.md",
			} {
				if !slices.Contains(listed, want) {
					t.Errorf("%s is not in it", want)
				}
			}
			for _, name := range listed {
				if !strings.HasPrefix(name, "/usr/") {
					t.Errorf("%s is in it", name)
				}
			}
			if needs := runTool(t, "rpm", "-qp", "--requires", rpm); !strings.Contains(needs, "glibc >= 2.17") {
				t.Errorf("it requires %s", needs)
			}
			if said := runTool(t, "rpm", "-qp", "--queryformat", "%{ARCH} %{LICENSE} %{BUILDHOST}", rpm); said != machine+" Apache-2.0 localhost" {
				t.Errorf("it says %q", said)
			}
			runTool(t, "rpm", "-K", "--nosignature", rpm)
		})
	}
}

// printed returns gpurun's output.
func printed(t *testing.T, words ...string) string {
	t.Helper()
	return runTool(t, build(t), words...)
}

// checkTree checks the content of a package: the binary, a manual page for each verb, the completion scripts,
// the documentation with its links, and the given files.
func checkTree(t *testing.T, dir, machine string, completions map[string]string, files ...string) {
	t.Helper()
	want, err := os.ReadFile(distFile(t, "gpurun-linux-"+machine))
	testenv.Check(t, err)
	if got := readIn(t, dir, "usr/bin/gpurun"); got != string(want) {
		t.Error("its binary is not the plain one")
	}
	for shell, name := range completions {
		if readIn(t, dir, name) != printed(t, "completion", shell) {
			t.Errorf("%s is not what gpurun completion %s prints", name, shell)
		}
	}
	pages := map[string]string{"gpurun": printed(t, "help", "man")}
	verbs, _, _ := strings.Cut(printed(t, "help"), "EXAMPLES:")
	for _, m := range regexp.MustCompile(`(?m)^   ([a-z]+)(?:, h)?  +[a-z]`).FindAllStringSubmatch(verbs, -1) {
		pages["gpurun-"+m[1]] = printed(t, "help", "man", m[1])
	}
	if len(pages) < 18 {
		t.Errorf("only %d manual pages were looked at", len(pages))
	}
	for name, page := range pages {
		if unzipped(t, readIn(t, dir, "usr/share/man/man1/"+name+".1.gz")) != page {
			t.Errorf("%s.1.gz is not what gpurun help man prints", name)
		}
	}
	for _, name := range append(files, "usr/share/doc/gpurun/README.md", "usr/share/doc/gpurun/examples/quickstart/train.py") {
		readIn(t, dir, name)
	}
	err = filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := entry.Info()
		want := fs.FileMode(0o644)
		if entry.IsDir() || strings.HasSuffix(path, "/bin/gpurun") {
			want = 0o755
		}
		if err == nil && path != dir && info.Mode().Perm() != want {
			t.Errorf("%s has mode %v", path, info.Mode())
		}
		return err
	})
	testenv.Check(t, err)
}

func readIn(t *testing.T, dir, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil {
		t.Error(err)
	}
	return string(text)
}

func unzipped(t *testing.T, text string) string {
	t.Helper()
	r, err := gzip.NewReader(strings.NewReader(text))
	if err != nil {
		t.Error(err)
		return ""
	}
	plain, err := io.ReadAll(r)
	if err != nil {
		t.Error(err)
	}
	return string(plain)
}

// A bill of materials has each module of its binary with its licence, and nothing that differs between
// builds. It is valid by CycloneDX's schema.
func TestDistMaterials(t *testing.T) {
	type component struct {
		Name, Version string
		Licenses      []any
	}
	for machine := range machines {
		name := distFile(t, "gpurun-linux-"+machine+".cdx.json")
		text, err := os.ReadFile(name)
		testenv.Check(t, err)
		var bill struct {
			SerialNumber string
			Metadata     struct {
				Timestamp string
				Component component
			}
			Components []component
		}
		testenv.Check(t, json.Unmarshal(text, &bill))
		if bill.SerialNumber+bill.Metadata.Timestamp != "" || bytes.Contains(text, []byte(`"hashes": [{"alg": "MD5"`)) {
			t.Errorf("%s differs from build to build", name)
		}
		info, err := buildinfo.ReadFile(strings.TrimSuffix(name, ".cdx.json"))
		testenv.Check(t, err)
		want, got := map[string]string{"std": strings.Replace(info.GoVersion, "go", "", 1)}, map[string]string{}
		for _, m := range info.Deps {
			want[m.Path] = m.Version
		}
		for _, c := range append(bill.Components, bill.Metadata.Component) {
			if len(c.Licenses) == 0 {
				t.Errorf("%s: %s has no licence", machine, c.Name)
			}
		}
		for _, c := range bill.Components {
			got[c.Name] = strings.TrimPrefix(c.Version, "go")
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: -binary +bill\n%s", machine, diff)
		}
		checkCycloneDX(t, text)
	}
}

// checkCycloneDX validates a bill with the schema next to the tool that wrote it.
func checkCycloneDX(t *testing.T, text []byte) {
	t.Helper()
	cmd := exec.Command("go", "list", "-m", "-modfile=.ci/dist/tools.mod", "-f", "{{.Dir}}", "github.com/CycloneDX/cyclonedx-go")
	cmd.Dir = testenv.Root(t)
	dir, err := cmd.Output()
	if err != nil || len(bytes.TrimSpace(dir)) == 0 {
		t.Logf("the schema is not in the module cache: %v", err)
		return
	}
	compiler := jsonschema.NewCompiler()
	for id, name := range map[string]string{
		"http://cyclonedx.org/schema/bom-1.6.schema.json": "bom-1.6.schema.json", "http://cyclonedx.org/schema/spdx.schema.json": "spdx.schema.json",
		"http://cyclonedx.org/schema/jsf-0.82.schema.json": "jsf-0.82.schemax.json",
	} {
		schema, err := os.Open(filepath.Join(strings.TrimSpace(string(dir)), "schema", name))
		testenv.Check(t, err)
		document, err := jsonschema.UnmarshalJSON(schema)
		schema.Close()
		if err == nil {
			err = compiler.AddResource(id, document)
		}
		testenv.Check(t, err)
	}
	schema, err := compiler.Compile("http://cyclonedx.org/schema/bom-1.6.schema.json")
	testenv.Check(t, err)
	bill, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	testenv.Check(t, err)
	if err := schema.Validate(bill); err != nil {
		t.Error(err)
	}
}

// Go's versions keep their order in the spelling of debs and rpms.
func TestVersionsOfPackages(t *testing.T) {
	versions := []string{
		"v1.2.3", "v1.2.3-rc.1", "", "v0.0.0-20261122144312-2b7ac000a728", "v1.2.4-0.20261122144312-2b7ac000a728", "v1.2.3-rc.1.0.20261122144312-2b7ac000a728", "v1.2.3+dirty",
	}
	want := []string{
		"1.2.3", "1.2.3~rc1", "0.0.0~0", "0.0.0~20261122144312.g2b7ac000a728", "1.2.4~20261122144312.g2b7ac000a728", "1.2.3~rc1.20261122144312.g2b7ac000a728", "1.2.3+dirty",
	}
	got, err := distPy(t, append([]string{"packaged"}, versions...)...)
	if diff := cmp.Diff(want, strings.Split(got, "\n")); err != nil || diff != "" {
		t.Errorf("%v\n%s", err, diff)
	}
	ordered := []string{"1.2.3~20261122144312.g2b7ac000a728", "1.2.3~rc1", "1.2.3~rc1.20261122144312.g2b7ac000a728", "1.2.3~rc2", "1.2.3", "1.2.4~20261122144312.g2b7ac000a728", "1.2.4"}
	for i := 1; i < len(ordered); i++ {
		runTool(t, "dpkg", "--compare-versions", ordered[i-1], "lt", ordered[i])
	}
}

// The Containerfile names existing files, and its base images by a tag.
func TestContainerfile(t *testing.T) {
	text := testenv.Page(t, filepath.Join(".ci", "dist", "Containerfile"))
	for _, m := range regexp.MustCompile(`(?m)^FROM (\S+)`).FindAllStringSubmatch(text, -1) {
		if !regexp.MustCompile(`^docker\.io/library/(golang:1\.\d+-bookworm|debian:\d+-slim)$`).MatchString(m[1]) {
			t.Errorf("the base %s", m[1])
		}
	}
	version := regexp.MustCompile(`(?m)^go (1\.\d+)`).FindStringSubmatch(testenv.Page(t, "go.mod"))
	if !strings.Contains(text, "golang:"+version[1]+"-") {
		t.Errorf("go.mod wants go %s", version[1])
	}
}
