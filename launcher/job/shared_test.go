package job

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gpurun/gpurun/strategy"
)

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
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
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
	if err != nil {
		t.Fatal(err)
	}
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
	if err != nil {
		t.Fatal(err)
	}
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
		if err := s.Share(code, nil, latest); err != nil {
			t.Fatal(err)
		}
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
	if err != nil {
		t.Fatal(err)
	}
	uid, gid := os.Geteuid(), os.Getegid()
	for n := range 3 * prunedAtOnce {
		path := filepath.Join(store.folder(fmt.Sprintf("job%03d", n)), store.own())
		putFit(t, path, good, 0o640, uid, gid)
		if err := os.Chtimes(path, old, old); err != nil {
			t.Fatal(err)
		}
	}
	another, recent := filepath.Join(store.folder("job001"), "u77777.json"), filepath.Join(store.folder("job002"), "u88888.json")
	putFit(t, another, good, 0o640, uid, gid)
	putFit(t, recent, good, 0o640, uid, gid)
	if err := os.Chtimes(another, old, old); err != nil {
		t.Fatal(err)
	}
	for n := range 4 {
		c := fmt.Sprintf("job%03d", n*prunedAtOnce-1)
		fit := sharedFit(2, strategy.Plan{strategy.MicroBatchSize: "8"})
		fit[0].Code = c
		if err := store.Save(c, fit); err != nil {
			t.Fatal(err)
		}
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
