package job

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gpurun/gpurun/launcher/system"
	"github.com/gpurun/gpurun/strategy"
	"github.com/gpurun/gpurun/test/testenv"
)

// writerRole makes the test binary a process that writes fits: a folder and its number.
const writerRole = "GPURUN_TEST_WRITES_FITS"

// rounds is how often each writer writes.
const rounds = 25

// writeFits adds its fits to a file that others write, too, and prints a line after each.
// Number -1 never ends by itself.
func writeFits(dir, number string) {
	store := JobStore{Dir: dir, Name: "job.json"}
	n, _ := strconv.Atoi(number)
	for i := 0; i < rounds || n < 0; i++ {
		err := store.Update(func(known []Fit) []Fit {
			return LearnFits(known, trainedWith(Conditions{Code: "code", Device: "cpu", DataParallel: n + 2}, strategy.Plan{strategy.MicroBatchSize: strategy.Number(i%10 + 1)}))
		})
		if errors.Is(err, syscall.EWOULDBLOCK) { // the others were too slow, on a slow machine
			i--
			continue
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		fmt.Println(i)
	}
}

func trainedWith(key Conditions, plan strategy.Plan) Observation {
	return Observation{Conditions: key, Training: strategy.Exact, Trained: true, Job: strategy.Job{Written: strategy.Plan{strategy.MicroBatchSize: "64"}, Knobs: map[strategy.Knob]strategy.Range{strategy.MicroBatchSize: {}}},
		Attempt: strategy.Attempt{Plan: plan, Ended: time.Date(2025, 11, 21, 3, 0, 0, 0, time.UTC)}}
}

// writer starts a process that writes fits.
func writer(t *testing.T, dir string, number int) (*exec.Cmd, *bufio.Scanner) {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%s %d", writerRole, dir, number))
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	testenv.Check(t, err)
	testenv.Check(t, cmd.Start())
	return cmd, bufio.NewScanner(out)
}

func TestConcurrentWritersLoseNothing(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "fits")
	var all []*exec.Cmd
	var read sync.WaitGroup
	for n := range 4 {
		cmd, out := writer(t, dir, n)
		read.Go(func() {
			for out.Scan() { // so that none waits for its reader
			}
		})
		all = append(all, cmd)
	}
	read.Wait()
	for _, cmd := range all {
		testenv.Check(t, cmd.Wait())
	}
	fits, err := JobStore{Dir: dir, Name: "job.json"}.Load()
	if err != nil || len(fits) != 4 {
		t.Fatalf("%d fits (%v), want one of each writer", len(fits), err)
	}
	for _, f := range fits {
		if len(f.Tried) != 10 {
			t.Errorf("writer %d: %d plans, want 10", f.DataParallel-2, len(f.Tried))
		}
	}
}

func TestKilledWriterLeavesTheFileWhole(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "fits")
	store := JobStore{Dir: dir, Name: "job.json"}
	for round := range 15 {
		cmd, out := writer(t, dir, -1)
		for range 2 + round%4 { // writes have begun, and one more is under way
			out.Scan()
		}
		testenv.Check(t, cmd.Process.Kill())
		if err := cmd.Wait(); err == nil {
			t.Fatal("the writer ended by itself")
		}
		if fits, err := store.Load(); err != nil || len(fits) != 1 || len(fits[0].Tried) == 0 {
			t.Fatalf("after kill -9: %v, %v", fits, err)
		}
	}
	// Nobody's lock is left, and what was cut off is swept up once it is old.
	if err := store.Update(func(known []Fit) []Fit { return known }); err != nil {
		t.Fatal(err)
	}
	left := filepath.Join(dir, ".gpurun-left")
	if err := os.WriteFile(left, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	old := time.Now().Add(-2 * time.Hour)
	if err := errors.Join(os.Chtimes(left, old, old), store.Update(func(known []Fit) []Fit { return known })); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(left); err == nil {
		t.Error("what a killed writer left is still there")
	}
}

// filledStore is a store with one fit.
func filledStore(t *testing.T) JobStore {
	t.Helper()
	store := JobStore{Dir: filepath.Join(t.TempDir(), "gpurun", "fits"), Name: FitName("train.py", "job")}
	err := store.Update(func(known []Fit) []Fit {
		return LearnFits(known, trainedWith(Conditions{Code: "code", Device: "cpu", DataParallel: 1}, strategy.Plan{strategy.MicroBatchSize: "8"}))
	})
	testenv.Check(t, err)
	if fits, err := store.Load(); err != nil || len(fits) != 1 {
		t.Fatalf("%v, %v", fits, err)
	}
	return store
}

func (s JobStore) path() string { return filepath.Join(s.Dir, s.Name) }

func TestFilesAreReadableByOwnerOnly(t *testing.T) {
	store := filledStore(t)
	for path, want := range map[string]os.FileMode{store.Dir: 0o700 | os.ModeDir, store.path(): 0o600, filepath.Join(store.Dir, lockFile): 0o600} {
		if info, err := os.Stat(path); err != nil || info.Mode() != want {
			t.Errorf("%s: %v, %v; want %v", path, info.Mode(), err, want)
		}
	}
}

func TestFilesWritableByOthersAreRefused(t *testing.T) {
	for name, spoil := range map[string]func(JobStore) error{
		"a file that others can write to":   func(s JobStore) error { return os.Chmod(s.path(), 0o622) },
		"a file that a group can write to":  func(s JobStore) error { return os.Chmod(s.path(), 0o660) },
		"a folder that others can write to": func(s JobStore) error { return os.Chmod(s.Dir, 0o777|os.ModeSticky) },
	} {
		store := filledStore(t)
		testenv.Check(t, spoil(store))
		refusedFits(t, name, store)
	}
	if os.Geteuid() != 0 {
		t.Skip("only root can give files away")
	}
	for name, path := range map[string]func(JobStore) string{"another user's file": JobStore.path, "another user's folder": func(s JobStore) string { return s.Dir }} {
		store := filledStore(t)
		testenv.Check(t, os.Chown(path(store), 4242, -1))
		refusedFits(t, name, store)
	}
}

// refusedFits wants a store that is neither read nor written.
func refusedFits(t *testing.T, name string, store JobStore) {
	t.Helper()
	var why *system.Untrusted
	if fits, err := store.Load(); !errors.As(err, &why) || fits != nil {
		t.Errorf("%s: it was read: %v, %v", name, fits, err)
	}
	if err := store.Update(func([]Fit) []Fit { return nil }); !errors.As(err, &why) {
		t.Errorf("%s: it was written: %v", name, err)
	}
}

func TestLinkIsNotFollowed(t *testing.T) {
	store := filledStore(t)
	elsewhere := filepath.Join(t.TempDir(), "elsewhere.json")
	testenv.Check(t, errors.Join(os.Rename(store.path(), elsewhere), os.Symlink(elsewhere, store.path())))
	if fits, err := store.Load(); err == nil {
		t.Errorf("the link was followed: %v", fits)
	}
}

func TestPipeIsNotWaitedFor(t *testing.T) {
	store := filledStore(t)
	testenv.Check(t, errors.Join(os.Remove(store.path()), syscall.Mkfifo(store.path(), 0o600)))
	if fits, err := store.Load(); err == nil {
		t.Errorf("a pipe was read: %v", fits)
	}
}

func TestHostileFilesAreIgnored(t *testing.T) {
	const fit = `{"v":1,"fits":[{"code":"c","device":"cpu","data_parallel":1,"written":{"micro_batch_size":64},"tried":[{"plan":{"micro_batch_size":8},"training":"exact","at":"2025-11-21T03:00:00Z"%s}]}]}`
	if _, err := decode(fmt.Appendf(nil, fit, "")); err != nil {
		t.Fatalf("a whole file: %v", err)
	}
	for name, text := range map[string]string{
		"empty":                 "",
		"cut off":               fmt.Sprintf(fit, "")[:100],
		"not JSON":              "\x00\x01",
		"a list":                "[]",
		"a knob that is none":   strings.Replace(fmt.Sprintf(fit, ""), `{"micro_batch_size":8}`, `{"rm -rf":8}`, 1),
		"a word that is none":   strings.Replace(fmt.Sprintf(fit, ""), `{"micro_batch_size":8}`, `{"precision":"fp64; reboot"}`, 1),
		"a negative batch":      strings.Replace(fmt.Sprintf(fit, ""), `{"micro_batch_size":8}`, `{"micro_batch_size":-8}`, 1),
		"a written plan":        strings.Replace(fmt.Sprintf(fit, ""), `{"micro_batch_size":64}`, `{"sharding":"zero9"}`, 1),
		"no time":               strings.Replace(fmt.Sprintf(fit, ""), `,"at":"2025-11-21T03:00:00Z"`, "", 1),
		"a number too large":    fmt.Sprintf(fit, `,"room_bytes":1e400`),
		"too large":             strings.Repeat(" ", largestFits) + fmt.Sprintf(fit, ""),
		"deep":                  strings.Repeat("[", 100_000),
		"no class of training":  strings.Replace(fmt.Sprintf(fit, ""), `"training":"exact",`, "", 1),
		"of a version to come":  `{"v":2,"fits":[]}`,
		"of no version":         `{"fits":[]}`,
		"a plan that is a list": strings.Replace(fmt.Sprintf(fit, ""), `{"micro_batch_size":8}`, `["micro_batch_size"]`, 1),
	} {
		if fits, err := decode([]byte(text)); err == nil {
			t.Errorf("%s: it was taken for %v", name, fits)
		}
	}
}

func TestDamagedFileIsReplacedAndNewerOneKept(t *testing.T) {
	store := filledStore(t)
	learn := func(known []Fit) []Fit {
		return LearnFits(known, trainedWith(Conditions{Code: "new", Device: "cpu", DataParallel: 1}, strategy.Plan{strategy.MicroBatchSize: "4"}))
	}
	if err := os.WriteFile(store.path(), []byte(`{"v":1,"fits":[{`), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := store.Load(); err == nil || !strings.Contains(err.Error(), "damaged") {
		t.Errorf("a damaged file: %v", err)
	}
	testenv.Check(t, store.Update(learn))
	if fits, err := store.Load(); err != nil || len(fits) != 1 || fits[0].Code != "new" {
		t.Errorf("after a damaged file: %v, %v", fits, err)
	}
	const newer = `{"v":2,"fits":"of another kind"}`
	testenv.Check(t, os.WriteFile(store.path(), []byte(newer), 0o600))
	if err := store.Update(learn); !errors.Is(err, errNewer) {
		t.Errorf("a newer gpurun's file: %v", err)
	}
	if text, err := os.ReadFile(store.path()); err != nil || string(text) != newer {
		t.Errorf("a newer gpurun's file became %q, %v", text, err)
	}
}

func TestOldestFileIsDropped(t *testing.T) {
	store := filledStore(t)
	for i := range mostFiles + 10 {
		path := filepath.Join(store.Dir, FitName("other", strconv.Itoa(i)))
		at := time.Now().Add(-time.Duration(i+1) * time.Hour)
		if err := errors.Join(os.WriteFile(path, []byte("{}"), 0o600), os.Chtimes(path, at, at)); err != nil {
			t.Fatal(err)
		}
	}
	if err := store.Update(func(known []Fit) []Fit { return known }); err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(store.Dir, "*.json"))
	if err != nil || len(files) != mostFiles {
		t.Errorf("%d files (%v), want %d", len(files), err, mostFiles)
	}
	for i, want := range map[int]bool{0: true, mostFiles - 2: true, mostFiles - 1: false, mostFiles + 9: false} {
		if _, err := os.Stat(filepath.Join(store.Dir, FitName("other", strconv.Itoa(i)))); (err == nil) != want {
			t.Errorf("file %d is there: %v, want %v", i, err == nil, want)
		}
	}
	large := filepath.Join(store.Dir, FitName("large"))
	if err := errors.Join(os.WriteFile(large, nil, 0o600), os.Truncate(large, largestStore), os.Chtimes(large, time.Time{}, time.Unix(1, 0))); err != nil {
		t.Fatal(err)
	}
	if err := store.Update(func(known []Fit) []Fit { return known }); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(large); err == nil {
		t.Error("what is too large is still there")
	}
}

func TestFolder(t *testing.T) {
	for _, c := range []struct{ state, home, want string }{
		{"/state", "/home/a", "/state/gpurun/fits"},
		{"", "/home/a", "/home/a/.local/state/gpurun/fits"},
		{"relative", "/home/a", "/home/a/.local/state/gpurun/fits"},
		{"", "", ""},
		{"", "relative", ""},
	} {
		dir, err := FitsFolder(func(name string) string { return map[string]string{"XDG_STATE_HOME": c.state, "HOME": c.home}[name] })
		if dir != c.want || (err == nil) != (c.want != "") {
			t.Errorf("%+v: %q, %v", c, dir, err)
		}
	}
}

// sharerRole makes the test binary a process that shares fits in a folder.
const sharerRole = "GPURUN_TEST_SHARES_FITS"

// code is the digest of the job that tests share.
const code = "c0de"

func sharedFit(ranks int, plan strategy.Plan) []Fit {
	out := trainedWith(Conditions{Code: code, Device: "cpu", DataParallel: ranks}, strategy.Plan{strategy.MicroBatchSize: "64"})
	out.Trained, out.Attempt.Diagnosis = false, strategy.Diagnosis{Cause: "cuda-oom", Fatal: true}
	return LearnFits(LearnFits(nil, out), trainedWith(out.Conditions, plan))
}

// share writes a user's fits many times, as fast as it can.
func share(dir string) {
	for i := range rounds {
		s := SharedStore{Dir: dir}
		if err := s.Save(code, sharedFit(2, strategy.Plan{strategy.MicroBatchSize: strategy.Number(i%10 + 1)})); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		if _, err := s.Load(code); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
}

func needRootForFits(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("only root can write as several users")
	}
}

// sharedFolder is a folder that a group shares, below folders that all can enter.
func sharedFolder(t *testing.T, mode os.FileMode, group int) string {
	t.Helper()
	above := t.TempDir()
	dir := filepath.Join(above, "fits")
	if err := errors.Join(os.Chmod(above, 0o755), os.Chmod(filepath.Dir(above), 0o755), os.Mkdir(dir, 0o700), os.Chown(dir, 0, group), os.Chmod(dir, mode)); err != nil {
		t.Fatal(err)
	}
	return dir
}

// putFit writes a file of a user and a group.
func putFit(t *testing.T, path string, text []byte, mode os.FileMode, uid, gid int) {
	t.Helper()
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, text, 0o600), os.Chown(path, uid, gid), os.Chmod(path, mode)); err != nil {
		t.Fatal(err)
	}
}

// Twenty users who write at once, without locks, lose nothing, and each reads what all others wrote.
func TestTwentyUsersShareAtOnce(t *testing.T) {
	needRootForFits(t)
	const users, group = 20, 5000
	dir := sharedFolder(t, 0o770|os.ModeSetgid|os.ModeSticky, group)
	var all []*exec.Cmd
	for n := range users {
		cmd := exec.Command("/proc/self/exe")
		cmd.Env, cmd.Stderr, cmd.Dir = []string{sharerRole + "=" + dir}, os.Stderr, "/"
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(1000 + n), Gid: uint32(2000 + n), Groups: []uint32{group}}}
		testenv.Check(t, cmd.Start())
		all = append(all, cmd)
	}
	for _, cmd := range all {
		if err := cmd.Wait(); err != nil {
			t.Error(err)
		}
	}
	entries, err := os.ReadDir(SharedStore{Dir: dir}.folder(code))
	if err != nil || len(entries) != users {
		t.Fatalf("%d files (%v), want one of each user and no lock", len(entries), err)
	}
	for _, e := range entries {
		info, err := e.Info()
		if err != nil || info.Mode().Perm() != 0o640 || info.Sys().(*syscall.Stat_t).Gid != group {
			t.Errorf("%s: %v, %v", e.Name(), info.Mode(), err)
		}
	}
	for trust, want := range map[bool][2]int{false: {0, users}, true: {users, 0}} {
		got, err := SharedStore{Dir: dir, Group: trust}.Load(code)
		if err != nil || len(got.Trusted) != want[0] || len(got.Others) != want[1] || len(got.Own) != 0 {
			t.Errorf("trust %v: %d trusted, %d others, %d own, %v", trust, len(got.Trusted), len(got.Others), len(got.Own), err)
		}
	}
}

// Whatever another user puts into the folder, the rest is read, and nothing of it is trusted that should not be.
func TestPoisonedSharedFiles(t *testing.T) {
	needRootForFits(t)
	const group = 5000
	good, err := encode(sharedFit(2, strategy.Plan{strategy.MicroBatchSize: "8"}))
	testenv.Check(t, err)
	change := func(from, to string) []byte {
		text := strings.Replace(string(good), from, to, 1)
		if text == string(good) {
			t.Fatalf("there is no %s in %s", from, good)
		}
		return []byte(text)
	}
	for name, test := range map[string]struct {
		text []byte
		mode os.FileMode
		uid  int
		gid  int
		want string
	}{
		"of the group":            {good, 0o640, 1001, group, "trusted"},
		"of another group":        {good, 0o644, 1001, 100, "other"},
		"writable by everybody":   {good, 0o666, 1001, group, "other"},
		"the caller's":            {good, 0o640, 0, group, "own"},
		"the caller's, writable":  {good, 0o660, 0, group, "trusted"},
		"under another's name":    {good, 0o640, 1002, group, ""},
		"not JSON":                {good[:len(good)/2], 0o640, 1001, group, ""},
		"another version":         {change(`"v":1`, `"v":9`), 0o640, 1001, group, ""},
		"of another job":          {change(`"code":"c0de"`, `"code":"c0d3"`), 0o640, 1001, group, ""},
		"words":                   {change(`"device":"cpu"`, `"device":"`+strings.Repeat("run this ", 40)+`"`), 0o640, 1001, group, ""},
		"control characters":      {change(`"device":"cpu"`, `"device":"\u001b[2J"`), 0o640, 1001, group, ""},
		"letters that look alike": {change(`"device":"cpu"`, `"device":"сpu"`), 0o640, 1001, group, ""},
		"a plan that is none":     {change(`"micro_batch_size":8`, `"micro_batch_size":"; rm -r"`), 0o640, 1001, group, ""},
		"deep":                    {[]byte(strings.Repeat("[", 100_000)), 0o640, 1001, group, ""},
		"large":                   {append(good, make([]byte, largestShared)...), 0o640, 1001, group, ""},
		"empty":                   {nil, 0o640, 1001, group, ""},
	} {
		dir := sharedFolder(t, 0o770|os.ModeSetgid|os.ModeSticky, group)
		store := SharedStore{Dir: dir, Group: true}
		uid := test.uid
		if test.uid == 1002 {
			uid = 1001
		}
		putFit(t, filepath.Join(store.folder(code), fmt.Sprintf("u%d.json", uid)), test.text, test.mode, test.uid, test.gid)
		putFit(t, filepath.Join(store.folder(code), "u1003.json"), good, 0o640, 1003, group)
		got, err := store.Load(code)
		want := map[string]int{"own": 0, "trusted": 1, "other": 0}
		if test.want != "" {
			want[test.want]++
		}
		if err != nil || len(got.Own) != want["own"] || len(got.Trusted) != want["trusted"] || len(got.Others) != want["other"] {
			t.Errorf("%s: %d own, %d trusted, %d others, %v; want %v", name, len(got.Own), len(got.Trusted), len(got.Others), err, want)
		}
	}
}

// What is no file does not stop the reader, nor does a folder that another user has closed.
func TestSharedFolderWithOtherThings(t *testing.T) {
	store := SharedStore{Dir: t.TempDir(), Group: true}
	if err := store.Save(code, sharedFit(2, strategy.Plan{strategy.MicroBatchSize: "8"})); err != nil {
		t.Fatal(err)
	}
	folder := store.folder(code)
	if err := errors.Join(syscall.Mkfifo(filepath.Join(folder, "u1.json"), 0o666), os.Mkdir(filepath.Join(folder, "u2.json"), 0o755),
		os.Symlink(filepath.Join(folder, store.own()), filepath.Join(folder, "u3.json")), os.WriteFile(filepath.Join(folder, "u4.json.x"), nil, 0o644)); err != nil {
		t.Fatal(err)
	}
	if got, err := store.Load(code); err != nil || len(got.Own) != 1 || len(got.Trusted)+len(got.Others) != 0 {
		t.Errorf("%+v, %v", got, err)
	}
	if got, err := store.Load("other"); err != nil || len(got.Own) != 0 {
		t.Errorf("a job that nobody has shared: %+v, %v", got, err)
	}
	if _, err := (SharedStore{Dir: filepath.Join(store.Dir, "missing")}).Load(code); err == nil {
		t.Error("a folder that is missing is no error")
	}
}

// A folder in which everybody can write makes no group.
func TestOpenFolderTrustsNoGroup(t *testing.T) {
	needRootForFits(t)
	good, err := encode(sharedFit(2, strategy.Plan{strategy.MicroBatchSize: "8"}))
	testenv.Check(t, err)
	store := SharedStore{Dir: sharedFolder(t, 0o777|os.ModeSticky, 5000), Group: true}
	putFit(t, filepath.Join(store.folder(code), "u1001.json"), good, 0o640, 1001, 5000)
	if got, err := store.Load(code); err != nil || len(got.Trusted) != 0 || len(got.Others) != 1 {
		t.Errorf("%+v, %v", got, err)
	}
}

// A folder that does not answer delays a read or a write by its patience at most.
func TestSlowSharedFolderIsNotWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stuck := make(chan struct{})
		store := SharedStore{Dir: t.TempDir(), hang: func() { <-stuck }}
		fit := sharedFit(2, strategy.Plan{strategy.MicroBatchSize: "8"})
		for name, try := range map[string]func() error{
			"a read":  func() error { _, err := store.Load(code); return err },
			"a write": func() error { return store.Share(code, fit, Observation{}) },
		} {
			began := time.Now()
			err := try()
			if err == nil || time.Since(began) != FitsPatience || !strings.Contains(err.Error(), "did not answer within 2s") {
				t.Errorf("%s, after %s: %v", name, time.Since(began), err)
			}
		}
		close(stuck)    // the disk answers again
		synctest.Wait() // for what it held up
	})
}

// A user who can remember nothing adds to what the user has shared before.
func TestShareWithoutAMemory(t *testing.T) {
	s := SharedStore{Dir: t.TempDir()}
	if err := s.Share(code, sharedFit(5, strategy.Plan{strategy.MicroBatchSize: "8"}), Observation{}); err != nil {
		t.Fatal(err)
	}
	for _, batch := range []strategy.Value{"4", "2"} {
		latest := trainedWith(Conditions{Code: code, Device: "cpu", DataParallel: 5}, strategy.Plan{strategy.MicroBatchSize: batch})
		testenv.Check(t, s.Share(code, nil, latest))
	}
	if got, err := s.Load(code); err != nil || len(got.Own) != 1 || len(got.Own[0].Tried) != 4 {
		t.Errorf("%+v, %v", got.Own, err)
	}
}

// A user's old files of other jobs are removed in time, and nobody else's.
func TestOldSharedFilesArePruned(t *testing.T) {
	store := SharedStore{Dir: t.TempDir()}
	old := time.Now().Add(-sharedFor - time.Hour)
	good, err := encode(sharedFit(2, strategy.Plan{strategy.MicroBatchSize: "8"}))
	testenv.Check(t, err)
	uid, gid := os.Geteuid(), os.Getegid()
	for n := range 3 * prunedAtOnce {
		path := filepath.Join(store.folder(fmt.Sprintf("job%03d", n)), store.own())
		putFit(t, path, good, 0o640, uid, gid)
		testenv.Check(t, os.Chtimes(path, old, old))
	}
	another, recent := filepath.Join(store.folder("job001"), "u77777.json"), filepath.Join(store.folder("job002"), "u88888.json")
	putFit(t, another, good, 0o640, uid, gid)
	putFit(t, recent, good, 0o640, uid, gid)
	testenv.Check(t, os.Chtimes(another, old, old))
	for n := range 4 {
		c := fmt.Sprintf("job%03d", n*prunedAtOnce-1)
		fit := sharedFit(2, strategy.Plan{strategy.MicroBatchSize: "8"})
		fit[0].Code = c
		testenv.Check(t, store.Save(c, fit))
	}
	left, err := filepath.Glob(filepath.Join(store.Dir, "v1", "*", "*.json"))
	if err != nil || len(left) > 4+2 {
		t.Errorf("%d files are left, %v", len(left), err)
	}
	for _, path := range []string{another, recent} {
		if _, err := os.Stat(path); err != nil {
			t.Error(err)
		}
	}
}

// A plan that untrusted users share is a proposal; what trusted ones share is used as the caller's own.
func TestSharedPlansAreProposalsUnlessTrusted(t *testing.T) {
	theirs := night(nil, here, job(), smaller)
	var r RememberedFits
	r = JudgeFits(nil, today())
	r.Propose(theirs, today())
	if r.Recalled != nil || len(r.Measured) != 0 || r.Proposed == nil || !equal(r.Proposed.Plan, smaller) {
		t.Errorf("others: %+v", r)
	}
	r = JudgeFits(FitsOfUsers{Trusted: theirs}.Beyond(nil), today())
	if r.Recalled == nil || !equal(r.Recalled.Plan, smaller) || len(r.Measured) != 2 {
		t.Errorf("trusted: %+v", r)
	}
	// One's own memory decides, and nothing counts twice.
	own := night(nil, here, job(), inBF16)
	if got := (FitsOfUsers{Own: own, Trusted: theirs}).Beyond(own); len(got) != 0 {
		t.Errorf("%+v", got)
	}
	if got := (FitsOfUsers{Own: LearnFits(nil, Observation{Conditions: here, Job: job(), Attempt: strategy.Attempt{Plan: asIs, Ended: lastNight, Diagnosis: strategy.Diagnosis{Cause: "cuda-oom", Fatal: true}}}), Trusted: theirs}).Beyond(nil); len(got) != 1 || !got[0].rescued() {
		t.Errorf("a plan that fitted does not come first: %+v", got)
	}
	// A plan that fitted on another device is not proposed.
	elsewhere := today()
	elsewhere.Device = "NVIDIA A100"
	r = JudgeFits(nil, elsewhere)
	r.Propose(theirs, elsewhere)
	if r.Proposed != nil || r.Recalled != nil {
		t.Errorf("another device: %+v", r)
	}
}
