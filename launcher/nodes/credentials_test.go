package nodes

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gpurun/gpurun/launcher/commandline"
	"github.com/gpurun/gpurun/launcher/errext"
	"github.com/gpurun/gpurun/test/testenv"
)

func TestNewSecret(t *testing.T) {
	one, two := NewSecret(), NewSecret()
	key, err := parseSecret(one)
	if err != nil || len(key) != 32 || one == two {
		t.Errorf("%d bytes, %v", len(key), err)
	}
}

func TestPrintSecret(t *testing.T) {
	var plain, asJSON strings.Builder
	if err := errors.Join(PrintSecret(&plain, false), PrintSecret(&asJSON, true)); err != nil {
		t.Fatal(err)
	}
	if key, err := parseSecret(plain.String()); err != nil || len(key) != 32 || strings.Count(plain.String(), "\n") != 1 {
		t.Errorf("%q: %v", plain.String(), err)
	}
	var said struct{ Secret string }
	if err := json.Unmarshal([]byte(asJSON.String()), &said); err != nil || len(said.Secret) != 64 {
		t.Errorf("%s: %v", asJSON.String(), err)
	}
}

func TestSecretsAreRead(t *testing.T) {
	key, _ := hex.DecodeString(testSecret)
	for what, text := range map[string]string{
		"hexadecimal": testSecret, "in capitals": strings.ToUpper(testSecret), "with a line's end": testSecret + "\r\n",
		"base64": base64.StdEncoding.EncodeToString(key), "without padding": base64.RawStdEncoding.EncodeToString(key),
		"for URLs": base64.URLEncoding.EncodeToString(key),
	} {
		if got, err := parseSecret(text); err != nil || string(got) != string(key) {
			t.Errorf("%s: %x, %v", what, got, err)
		}
	}
	for text, want := range map[string]string{
		"": "is empty", " \n": "is empty", testSecret[2:]: "has 31 bytes, and needs 32", "hunter2!": "neither hexadecimal nor base64", "aGVsbG8=": "has 5 bytes",
	} {
		if _, err := parseSecret(text); err == nil || !strings.Contains(err.Error(), want) || errext.Hint(err) == "" {
			t.Errorf("%q: %v", text, err)
		}
	}
}

// A secret is not in the error that it is too short.
func TestErrorsShowNoSecrets(t *testing.T) {
	for _, text := range []string{"correct horse battery staple", testSecret[:40], "c2VjcmV0c2VjcmV0"} {
		_, err := Trust(t.Context(), TrustOptions{Run: "run", Nodes: 2, Environ: commandline.Environ{secretVariable: text}})
		if err == nil || strings.Contains(err.Error()+errext.Hint(err), text) || !strings.Contains(err.Error(), secretVariable) {
			t.Errorf("%v", err)
		}
	}
}

// A file counts if no other user can read it or could have written it.
func TestSecretFiles(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	for name, mode := range map[string]os.FileMode{"good": 0o600, "fixed": 0o400, "group": 0o640, "open": 0o644, "writable": 0o602} {
		if err := errors.Join(os.WriteFile(at(name), []byte(testSecret+"\n"), 0o600), os.Chmod(at(name), mode)); err != nil {
			t.Fatal(err)
		}
	}
	large := strings.Repeat("x", 2*mostSecretText)
	if err := errors.Join(os.Symlink("good", at("link")), unix.Mkfifo(at("pipe"), 0o600), os.WriteFile(at("large"), []byte(large), 0o600)); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		"good": "", "fixed": "", "link": "", // as Kubernetes makes them
		"group": "open to other users (mode 0640)", "open": "open to other users (mode 0644)", "writable": "open to other users",
		"pipe": "not a regular file", "none": "no such file", "": "is a directory", "large": "more than",
	} {
		if name == "" {
			want = "not a regular file"
		}
		c, err := Trust(t.Context(), TrustOptions{Run: "run", Nodes: 2, Environ: commandline.Environ{secretFileVariable: at(name), secretVariable: "ignored"}})
		if want == "" {
			if err != nil || !strings.Contains(c.Way, secretFileVariable) {
				t.Errorf("%s: %v", name, err)
			}
		} else if err == nil || !strings.Contains(err.Error(), want) || !strings.HasPrefix(err.Error(), secretFileVariable) {
			t.Errorf("%s: %v, want %q", name, err, want)
		}
	}
}

// Whose files are taken: the caller's and root's, of the latter also those that a group may read.
func TestOwnersOfSecrets(t *testing.T) {
	me := uint32(os.Geteuid())
	for what, test := range map[string]struct {
		uid, mode uint32
		want      string
	}{
		"mine": {me, unix.S_IFREG | 0o600, ""}, "root's": {0, unix.S_IFREG | 0o400, ""}, "another's": {me + 4242, unix.S_IFREG | 0o600, "another user"},
		"root's for all": {0, unix.S_IFREG | 0o444, "open to other"}, "a folder": {me, unix.S_IFDIR | 0o700, "not a regular file"},
	} {
		err := isPrivate("f", unix.Stat_t{Uid: test.uid, Mode: test.mode})
		if (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if err := isPrivate("f", unix.Stat_t{Uid: 0, Mode: unix.S_IFREG | 0o440}); (err == nil) != (me != 0) {
		t.Errorf("a volume with an fsGroup, as user %d: %v", me, err)
	}
}

// A pod reads the secret that another user of the volume's group left, and none that others can write to.
func TestSecretOnAVolume(t *testing.T) {
	path := filepath.Join(testenv.Volume(t), "runs", "secret")
	left, err := leaveSecret(path)
	if err = errors.Join(err, os.Chown(path, 4242, -1)); err != nil {
		t.Fatal(err)
	}
	if read, err := leaveSecret(path); err != nil || !bytes.Equal(read, left) {
		t.Errorf("%x, %v, want %x", read, err, left)
	}
	if err := os.Chmod(path, 0o662); err != nil {
		t.Fatal(err)
	}
	if _, err := leaveSecret(path); err == nil || !strings.Contains(err.Error(), "another user (uid 4242)") {
		t.Errorf("written by all: %v", err)
	}
}

// Node 0 leaves a secret that the others find, and keeps it when the launch is started again.
func TestASecretInASharedFolder(t *testing.T) {
	shared := filepath.Join(t.TempDir(), "runs", ".nodes", "secret")
	trust := func(node int) *Credentials {
		c, err := Trust(t.Context(), TrustOptions{Run: "run", Node: node, Nodes: 2, Shared: shared})
		if err != nil {
			t.Error(err)
		}
		return c
	}
	waited := make(chan *Credentials)
	go func() { waited <- trust(1) }()
	head := trust(0)
	node := <-waited
	if info, err := os.Stat(shared); err != nil || info.Mode() != 0o600 {
		t.Errorf("%v, %v", info, err)
	}
	port := freePort(t)
	links, err := Listen(t.Context(), head, port)
	if err != nil {
		t.Fatal(err)
	}
	defer links.Close()
	for _, c := range []*Credentials{node, trust(1)} {
		link, err := NewDialer(c, "127.0.0.1", port).Dial(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		link.Close()
	}
	left, _ := os.ReadFile(shared)
	trust(0)
	if again, _ := os.ReadFile(shared); string(again) != string(left) || len(left) == 0 {
		t.Error("the launch has another secret when it is started again")
	}
}

// What a job planted in the place of the secret is not taken.
func TestAPlantedSecret(t *testing.T) {
	dir := t.TempDir()
	planted, link, open := filepath.Join(dir, "planted"), filepath.Join(dir, "link"), filepath.Join(dir, "open")
	if err := errors.Join(os.WriteFile(planted, []byte(testSecret), 0o600), os.Symlink(planted, link), os.WriteFile(open, []byte(testSecret), 0o600), os.Chmod(open, 0o644)); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{link, open, dir} {
		for node := range 2 {
			if c, err := Trust(t.Context(), TrustOptions{Run: "run", Node: node, Nodes: 2, Shared: path}); err == nil {
				t.Errorf("node %d takes %s: %s", node, path, c.Way)
			}
		}
	}
}

// A folder that is not shared after all is no reason to wait for ever, nor is a call to stop.
func TestAFolderThatIsNotShared(t *testing.T) {
	path := filepath.Join(t.TempDir(), "secret")
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		_, err := Trust(t.Context(), TrustOptions{Run: "run", Node: 1, Nodes: 2, Shared: path})
		if err == nil || time.Since(began) < time.Minute || time.Since(began) > 2*sharedWait || !strings.Contains(errext.Hint(err), "gpurun secret") {
			t.Errorf("after %v: %v (%s)", time.Since(began), err, errext.Hint(err))
		}
		why := errors.New("enough")
		ctx, stop := context.WithTimeoutCause(t.Context(), time.Second, why)
		defer stop()
		if _, err := Trust(ctx, TrustOptions{Run: "run", Node: 1, Nodes: 2, Shared: path}); !errors.Is(err, why) {
			t.Errorf("%v", err)
		}
	})
}

func TestNothingToTrust(t *testing.T) {
	_, err := Trust(t.Context(), TrustOptions{Run: "run", Node: 1, Nodes: 4})
	if err == nil || !strings.Contains(err.Error(), "4 nodes") || !strings.Contains(errext.Hint(err), "GPURUN_SECRET_FILE") || !strings.Contains(errext.Hint(err), "--mpi=pmi2") || errext.Code(err, 2) != 2 {
		t.Errorf("%v (%s)", err, errext.Hint(err))
	}
	for _, o := range []TrustOptions{{Node: 2, Nodes: 2}, {Node: -1, Nodes: 2}, {}} {
		if _, err := Trust(t.Context(), o); err == nil {
			t.Errorf("%+v", o)
		}
	}
}

// hidden is what a process sees of itself, and its children of it, once it has hidden what
// nodes are known by. It runs in a separate process.
const hidden = "GPURUN_TEST_HIDDEN"

func TestHide(t *testing.T) {
	if os.Getenv(hidden) != "" {
		hideAndShow(t)
		return
	}
	cmd := exec.Command(os.Args[0], "-test.run=^TestHide$", "-test.v")
	cmd.Env = append(os.Environ(), hidden+"=1", "BEFORE=1", secretVariable+"="+testSecret, "BEHIND=1", secretFileVariable+"=/run/secret", "PMI_RANK=1", "PMI_FD=3")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	if strings.Contains(string(out), testSecret) {
		t.Errorf("the secret was said: %s", out)
	}
}

func hideAndShow(t *testing.T) {
	started, err := os.ReadFile("/proc/self/environ")
	if err != nil || !strings.Contains(string(started), testSecret) {
		t.Fatalf("before: %v", err)
	}
	for range 2 {
		if err := hide(); err != nil {
			t.Fatal(err)
		}
	}
	if dumpable, err := unix.PrctlRetInt(unix.PR_GET_DUMPABLE, 0, 0, 0, 0); dumpable != 0 || err != nil {
		t.Errorf("dumpable: %d, %v", dumpable, err)
	}
	if info, err := os.Stat("/proc/self/environ"); err != nil || info.Sys().(*syscall.Stat_t).Uid != 0 {
		t.Errorf("the kernel shows the first environment to other processes of the user: %v, %v", info, err)
	}
	child, err := exec.Command("env").Output()
	if err != nil || strings.Contains(string(child), secretVariable) || strings.Contains(string(child), "PMI_") || !strings.Contains(string(child), "BEHIND=1") {
		t.Errorf("a child sees %s, %v", child, err)
	}
}
