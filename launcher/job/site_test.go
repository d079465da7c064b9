package job

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/gpurun/gpurun/launcher/commandline"
	"github.com/gpurun/gpurun/launcher/errext"
	"github.com/gpurun/gpurun/launcher/mask"
	"github.com/gpurun/gpurun/strategy"
	"github.com/gpurun/gpurun/test/testenv"
)

// siteAt makes a working directory for typed commands, and a site's configuration with a text.
func siteAt(t *testing.T, text string) (dir, file string, env []string) {
	t.Helper()
	dir, env = typedAt(t)
	t.Chdir(dir)
	site := t.TempDir()
	if err := os.Chmod(site, 0o755); err != nil { // a test's folder is its user's: root's where root tests
		t.Fatal(err)
	}
	file = filepath.Join(site, "config.toml")
	put(t, file, text)
	testenv.Check(t, os.Chmod(file, 0o644))
	SiteConfig = file
	t.Cleanup(func() { SiteConfig = "" })
	return dir, file, append(env, "XDG_CONFIG_DIRS="+filepath.Join(dir, "xdg"))
}

func needRoot(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("only root can make a file that root owns")
	}
}

func TestConfigFilesAreInOrder(t *testing.T) {
	SiteConfig = "/etc/gpurun/config.toml"
	defer func() { SiteConfig = "" }()
	for want, env := range map[string]commandline.Environ{
		"/etc/gpurun/config.toml /etc/xdg/gpurun/config.toml /h/.config/gpurun/config.toml":         {"HOME": "/h"},
		"/etc/gpurun/config.toml /b/gpurun/config.toml /a/gpurun/config.toml /c/gpurun/config.toml": {"XDG_CONFIG_DIRS": "/a:relative:/b:/etc", "XDG_CONFIG_HOME": "/c"},
	} {
		var got []string
		for _, f := range configFiles(env) {
			got = append(got, f.path)
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%v: %v, want %s", env, got, want)
		}
	}
}

// The site's configuration is the weakest of all, key by key, and [launch] is known there.
func TestSiteConfigIsBelowTheUsers(t *testing.T) {
	dir, file, env := siteAt(t, "[recovery]\nmax_attempts = 9\nnumerics = \"preserve\"\nrestart_from_zero = \"1h\"\n[launch]\npreflight = true\nstall_timeout = \"20m\"\nhooks = false\n[limits]\ndevice_memory = \"1GiB\"\n[fits]\nshared = \"/shared/fits\"\n")
	put(t, filepath.Join(dir, "xdg/gpurun/config.toml"), "[recovery]\nmax_attempts = 8\nnumerics = \"any\"\n[launch]\nhooks = true\n")
	put(t, filepath.Join(dir, ".config/gpurun/config.toml"), "[recovery]\nmax_attempts = 7\n[launch]\nlog_limit = \"1MiB\"\n")
	for _, words := range [][]string{{"train.py"}, {"python", "train.py"}, {"train.toml"}, {"--nproc-per-node", "1", "python", "train.py"}, {"uv", "run", "train.py"}, {"torchrun.toml"}} {
		put(t, filepath.Join(dir, "train.toml"), "[job]\nscript = \"train.py\"\n")
		put(t, filepath.Join(dir, "torchrun.toml"), "[job]\ncommand = \"torchrun --nproc-per-node 1 train.py\"\n")
		j, _, err := Open(t.Context(), words, env, dir)
		testenv.Check(t, err)
		if p := j.Policy; p.MaxAttempts != 7 || p.Numerics != "any" || p.RestartFromZero.Duration().Hours() != 1 || j.DeviceMemory != 1<<30 || j.Fits.Shared != "/shared/fits" || j.Fits.Trust != TrustOwn {
			t.Errorf("%v: %+v, %d, %+v", words, p, j.DeviceMemory, j.Fits)
		}
		if l := j.Launch; l.Preflight != PreflightOn || l.Stalls == nil || !l.Hooks || l.LogLimit != 1<<20 {
			t.Errorf("%v: %+v", words, l)
		}
	}
	j, _, err := Open(t.Context(), []string{"--max-attempts", "3", "train.toml"}, env, dir)
	testenv.Check(t, err)
	for _, want := range []strategy.Setting{
		{Key: "recovery.max_attempts", Value: "3", By: "--max-attempts"},
		{Key: "recovery.numerics", Value: `"any"`, By: filepath.Join(dir, "xdg/gpurun/config.toml"), Line: 3},
		{Key: "launch.preflight", Value: "true", By: file, Line: 6},
		{Key: "launch.log_limit", Value: `"1MiB"`, By: filepath.Join(dir, ".config/gpurun/config.toml"), Line: 4},
	} {
		if !slices.Contains(j.Settings(), want) {
			t.Errorf("no %+v in %+v", want, j.Settings())
		}
	}
}

// A locked key can be made stricter, and not looser, by a flag, the user's configuration, a train.toml or a folder in
// XDG_CONFIG_DIRS. The error names the file and line that lock it.
func TestLockedKeysAreNotLoosened(t *testing.T) {
	needRoot(t)
	for key, test := range map[string]struct{ locked, looser, stricter string }{
		"recovery.max_attempts":      {"5", "6", "4"},
		"recovery.numerics":          {`"mixed-precision"`, `"any"`, `"preserve"`},
		"recovery.restart_from_zero": {`"10m"`, `"11m"`, `"5m"`},
		"recovery.never":             {`["nvme"]`, `["shard"]`, `["shard", "nvme"]`},
		"recovery.in_place":          {"false", "true", "false"},
		"recovery.questions":         {`"5s"`, `"6s"`, `"0"`},
		"launch.preflight":           {`"auto"`, "false", "true"},
		"notify.url":                 {`"https://site.example/hook"`, `"https://other.example/hook"`, ""},
		"notify.url_file":            {`"/etc/gpurun/url"`, `"/tmp/url"`, ""},
		"notify.url_env":             {`"SITE_URL"`, `"MY_URL"`, ""},
		"notify.command":             {`["/opt/tell"]`, `["/bin/true"]`, ""},
	} {
		section, name, _ := strings.Cut(key, ".")
		dir, file, env := siteAt(t, fmt.Sprintf("# the site's\nlocked = [\n  %q,\n]\n[%s]\n%s = %s\n", key, section, name, test.locked))
		job := filepath.Join(dir, "train.toml")
		user, xdg := filepath.Join(dir, ".config/gpurun/config.toml"), filepath.Join(dir, "xdg/gpurun/config.toml")
		for _, at := range []string{job, user, xdg} {
			for value, allowed := range map[string]bool{test.looser: false, test.stricter: true} {
				if value == "" {
					continue
				}
				put(t, job, "[job]\nscript = \"train.py\"\n")
				put(t, user, "")
				put(t, xdg, "")
				text, line := fmt.Sprintf("[%s]\n%s = %s\n", section, name, value), 2
				if at == job {
					text, line = "[job]\nscript = \"train.py\"\n"+text, 4
				}
				put(t, at, text)
				if at == xdg {
					chown(t, at, 1000) // not the site's own
				}
				_, _, err := Open(t.Context(), []string{job}, env, dir)
				if allowed {
					if err != nil {
						t.Errorf("%s = %s in %s: %v", key, value, at, err)
					}
					continue
				}
				var refused *Error
				if !errors.As(err, &refused) || refused.File != at || refused.Faults[0].Line != line || !strings.Contains(err.Error(), " by "+file+":3; only ") {
					t.Errorf("%s = %s in %s: %v", key, value, at, err)
				}
				if j, _, err := OpenToRun(t.Context(), []string{job}, env, dir); err != nil || j.Refused() == nil || len(j.Held()) != 1 || section != "notify" && len(j.hold()) != 0 {
					t.Errorf("%s in %s, to resume: %v", key, at, err)
				}
			}
		}
	}
}

func chown(t *testing.T, path string, uid int) {
	t.Helper()
	testenv.Check(t, os.Chown(path, uid, uid))
}

func TestFlagsDoNotLoosenLockedKeys(t *testing.T) {
	needRoot(t)
	dir, file, env := siteAt(t, "locked = [\"recovery.max_attempts\", \"recovery.numerics\", \"recovery.never\", \"recovery.in_place\"]\n[recovery]\nmax_attempts = 5\nnever = [\"nvme\"]\n")
	for words, want := range map[string]string{
		"--max-attempts 6":      "--max-attempts 6: recovery.max_attempts is locked at 5 by " + file + ":1; only a smaller number is allowed",
		"--numerics any":        `--numerics any: recovery.numerics is locked at "mixed-precision" by ` + file,
		"--never shard":         `--never shard: recovery.never is locked at ["nvme"] by ` + file,
		"--max-attempts 4":      "",
		"--numerics preserve":   "",
		"--never shard,nvme":    "",
		"--no-in-place":         "",
		"--mode ladder":         "",
		"--device-memory 1GiB ": "",
	} {
		_, _, err := Open(t.Context(), append(strings.Fields(words), "train.py"), env, dir)
		if got := fmt.Sprint(err); (err == nil) != (want == "") || want != "" && !strings.Contains(got, want) {
			t.Errorf("%s: %v, want %s", words, err, want)
		}
	}
}

// A next step has no command that a locked key refuses: its reason says what is locked, and where.
func TestNextStepsKeepToLockedKeys(t *testing.T) {
	needRoot(t)
	dir, file, env := siteAt(t, "locked = [\"recovery.max_attempts\", \"recovery.numerics\", \"recovery.never\"]\n[recovery]\nmax_attempts = 5\nnever = [\"nvme\"]\n")
	for _, test := range []struct{ typed, setting, value, command, reason string }{
		{"train.py", strategy.SettingMaxAttempts, "10", "", "the site's configuration allows no more: recovery.max_attempts is locked at 5 by " + file + ":1"},
		{"--max-attempts 3 train.py", strategy.SettingMaxAttempts, "6", "gpurun --max-attempts 5 train.py", ""},
		{"--max-attempts 2 train.py", strategy.SettingMaxAttempts, "4", "gpurun --max-attempts 4 train.py", ""},
		{"train.py", strategy.SettingNumerics, "any", "", `the site's configuration allows no more: recovery.numerics is locked at "mixed-precision" by ` + file + ":1"},
		{"--numerics preserve train.py", strategy.SettingNumerics, "mixed-precision", "gpurun --numerics mixed-precision train.py", ""},
		{"train.py", strategy.SettingNever, "", "", `the site's configuration allows no more: recovery.never is locked at ["nvme"] by ` + file + ":1"},
		{"--never shard,nvme train.py", strategy.SettingNever, "nvme", "gpurun --never nvme train.py", ""},
	} {
		typed := strings.Fields(test.typed)
		j, _, err := Open(t.Context(), typed, env, dir)
		testenv.Check(t, err)
		w := NextWriter{Prepared: &Prepared{Resolved: Resolved{Inspected: Inspected{Job: *j}}}, Typed: typed, Dir: dir, From: dir, Mask: mask.New(nil, nil)}
		next, ok := w.Write(strategy.NextStep{Kind: strategy.NextPolicy, Setting: test.setting, Value: test.value}, strategy.LogPlace{})
		if refused := next.Kind == strategy.NextInspect; !ok || refused != (test.command == "") || next.Reason != test.reason || !refused && next.Command != test.command || strings.Contains(next.Command, "--") && refused {
			t.Errorf("%s, %s = %q: %+v", test.typed, test.setting, test.value, next)
		}
	}
}

// A run that began with a looser policy continues with the stricter one, and the warning names where it was set.
func TestReplacedSettingIsNamed(t *testing.T) {
	needRoot(t)
	dir, file, env := siteAt(t, "locked = [\"recovery.max_attempts\"]\n[recovery]\nmax_attempts = 1\n")
	j, _, err := Open(t.Context(), []string{"train.py"}, env, dir)
	testenv.Check(t, err)
	looser, stricter := j.Policy, j.Policy
	looser.MaxAttempts, stricter.InPlace = 8, false
	for _, test := range []struct {
		began, now strategy.Policy
		want       string
	}{
		{looser, j.Policy, "recovery.max_attempts = 1 (" + file + ":3, locked by " + file + ":1): this is stricter than at the beginning of the run, and counts from now on"},
		{j.Policy, j.Policy, ""},
		{stricter, stricter, ""},
		{j.Policy, stricter, "recovery.in_place as in an earlier start: this is stricter than at the beginning of the run, and counts from now on"},
	} {
		if got := strings.Join(j.Replaced(test.began, test.now), "\n"); got != test.want {
			t.Errorf("%q, want %q", got, test.want)
		}
	}
}

// Where the destination of notifications is locked, events can be added to those that the site sends, and not removed.
func TestLockedDestinationKeepsItsEvents(t *testing.T) {
	needRoot(t)
	dir, file, env := siteAt(t, "locked = [\"notify.url_file\"]\n[notify]\nurl_file = \"/etc/gpurun/url\"\non = [\"exhausted\", \"failed\"]\n")
	user := filepath.Join(dir, ".config/gpurun/config.toml")
	kept := ":2: notify.on: events can only be added to `on`: exhausted, failed (notify.url_file is locked by " + file + ":1)"
	for text, want := range map[string]string{
		`on = ["rescued"]`: kept, `on = []`: kept, `on = ["failed", "rescued", "exhausted"]`: "",
		"url_file = \"/tmp/url\"\non = [\"rescued\"]": ":2: notify.url_file: locked by " + file + ":1; only this destination is allowed",
	} {
		put(t, user, "[notify]\n"+text+"\n")
		j, _, err := OpenToRun(t.Context(), []string{"train.py"}, env, dir)
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(j.Held(), "\n"); want == "" && got != "" || want != "" && got != user+want {
			t.Errorf("%s: %s, want %s", text, got, want)
		}
	}
}

// The message about a looser value lists the values that are allowed.
func TestLockedKeyListsAllowedValues(t *testing.T) {
	needRoot(t)
	for locked, want := range map[string]string{
		"numerics = \"mixed-precision\"": `only "preserve" or "mixed-precision" is allowed`, "numerics = \"preserve\"": `only "preserve" is allowed`,
	} {
		dir, _, env := siteAt(t, "locked = [\"recovery.numerics\"]\n[recovery]\n"+locked+"\n")
		if _, _, err := Open(t.Context(), []string{"--numerics", "any", "train.py"}, env, dir); !strings.HasSuffix(fmt.Sprint(err), want) {
			t.Errorf("%s: %v, want %s", locked, err, want)
		}
	}
	for locked, want := range map[string]string{"true": "only true is allowed", `"auto"`: `only "auto" or true is allowed`} {
		dir, _, env := siteAt(t, "locked = [\"launch.preflight\"]\n[launch]\npreflight = "+locked+"\n")
		put(t, filepath.Join(dir, ".config/gpurun/config.toml"), "[launch]\npreflight = false\n")
		if _, _, err := Open(t.Context(), []string{"train.py"}, env, dir); !strings.Contains(fmt.Sprint(err), want) {
			t.Errorf("%s: %v, want %s", locked, err, want)
		}
	}
}

// Two files of the site hold both: of each key, the stricter value counts.
func TestTwoSiteFilesHoldBoth(t *testing.T) {
	needRoot(t)
	dir, _, env := siteAt(t, "locked = [\"recovery.max_attempts\", \"recovery.restart_from_zero\"]\n[recovery]\nmax_attempts = 5\nrestart_from_zero = \"1h\"\n")
	xdg := filepath.Join(dir, "xdg/gpurun/config.toml")
	put(t, xdg, "locked = [\"recovery.max_attempts\", \"recovery.restart_from_zero\", \"recovery.never\"]\n[recovery]\nmax_attempts = 50\nrestart_from_zero = \"5m\"\nnever = [\"nvme\"]\n")
	j, _, err := Open(t.Context(), []string{"train.py"}, env, dir)
	if err != nil || j.Policy.MaxAttempts != 5 || j.Policy.RestartFromZero.Duration().Minutes() != 5 {
		t.Errorf("%+v, %v", j.Policy, err)
	}
	for words, want := range map[string]string{
		"--max-attempts 6 train.py": SiteConfig + ":1", "--never shard train.py": xdg + ":1",
	} {
		if _, _, err := Open(t.Context(), strings.Fields(words), env, dir); !strings.Contains(fmt.Sprint(err), want) {
			t.Errorf("%s: %v, want %s", words, err, want)
		}
	}
	// A destination of notifications cannot be two.
	put(t, SiteConfig, "locked = [\"notify.url\"]\n[notify]\nurl = \"https://a.example/hook\"\n")
	put(t, xdg, "[notify]\nurl = \"https://b.example/hook\"\n")
	if _, _, err := Open(t.Context(), []string{"train.py"}, env, dir); !strings.Contains(fmt.Sprint(err), "locked by "+SiteConfig+":1; only this destination is allowed") {
		t.Errorf("two destinations: %v", err)
	}
}

// The locks of a file that another user than root can change do not count; a file that everybody can change counts
// for nothing.
func TestLocksOfAnUnsafeFileDoNotCount(t *testing.T) {
	needRoot(t)
	for name, test := range map[string]struct {
		change  func(t *testing.T, file string)
		warning string
		value   int // of max_attempts, with --max-attempts 50 before
		locked  bool
	}{
		"root's alone":             {func(*testing.T, string) {}, "", 5, true},
		"a link":                   {link, "", 5, true},
		"a link to an unsafe file": {func(t *testing.T, file string) { link(t, file); chown(t, file+".real", 1000) }, "belongs to uid 1000, not to root", 5, false},
		"another user's":           {func(t *testing.T, file string) { chown(t, file, 1000) }, "belongs to uid 1000, not to root", 5, false},
		"in another user's folder": {func(t *testing.T, file string) { chown(t, filepath.Dir(file), 1000) }, "belongs to uid 1000, not to root", 5, false},
		"writable by the group":    {func(t *testing.T, file string) { mode(t, file, 0o664) }, "can write to it (mode 0664)", 5, false},
		"the folder, by the group": {func(t *testing.T, file string) { mode(t, filepath.Dir(file), 0o775) }, "can write to it (mode 0775)", 5, false},
		"writable by everybody":    {func(t *testing.T, file string) { mode(t, file, 0o666) }, "everybody can change", 20, false},
		"the folder, by everybody": {func(t *testing.T, file string) { mode(t, filepath.Dir(file), 0o777) }, "everybody can change", 20, false},
	} {
		dir, file, env := siteAt(t, "locked = [\"recovery.max_attempts\"]\n[recovery]\nmax_attempts = 5\n")
		test.change(t, file)
		j, _, err := Open(t.Context(), []string{"train.py"}, env, dir)
		if err != nil || j.Policy.MaxAttempts != test.value || (len(j.Warnings) > 0) != (test.warning != "") || !strings.Contains(strings.Join(j.Warnings, ";"), test.warning) {
			t.Errorf("%s: %d attempts, %q, %v", name, j.Policy.MaxAttempts, j.Warnings, err)
		}
		if _, _, err := Open(t.Context(), []string{"--max-attempts", "50", "train.py"}, env, dir); (err != nil) != test.locked {
			t.Errorf("%s: --max-attempts 50: %v", name, err)
		}
	}
}

func mode(t *testing.T, path string, bits os.FileMode) {
	t.Helper()
	testenv.Check(t, os.Chmod(path, bits))
}

// link puts a link in the place of a file.
func link(t *testing.T, file string) {
	t.Helper()
	testenv.Check(t, errors.Join(os.Rename(file, file+".real"), os.Symlink(file+".real", file)))
}

func TestSiteConfigIsJudged(t *testing.T) {
	for text, want := range map[string]string{
		"locked = [\"recovery.maxattempts\"]\n":     `:1:11: locked[0]: recovery.maxattempts is not a key that can be locked`,
		"locked = [\"recovery.mode\"]\n":            "recovery.mode is not a key that can be locked; these are recovery.max_attempts, recovery.numerics",
		"locked = \"recovery.never\"\n":             ":1:10: locked: want a list of keys",
		"locked = [3]\n":                            "3 is not a key",
		"[launch]\nnproc_per_node = 2\n":            ":2:1: launch.nproc_per_node: unknown key; it belongs in a train.toml",
		"[fits]\ntrust = \"all\"\n":                 ":2:9: fits.trust: unknown value",
		"[recovery]\nlocked = [\"recovery.never\"]": ":2:1: recovery.locked: unknown key",
	} {
		dir, file, env := siteAt(t, text)
		if _, _, err := Open(t.Context(), []string{"train.py"}, env, dir); !strings.Contains(fmt.Sprint(err), want) || !strings.Contains(fmt.Sprint(err), file) {
			t.Errorf("%q: %v, want %s", text, err, want)
		}
	}
}

// The example of the page for administrators is a configuration whose locks hold.
func TestExampleOfASiteConfig(t *testing.T) {
	needRoot(t)
	_, block, _ := strings.Cut(testenv.Page(t, "docs/administration.md"), "```toml\n")
	example, _, found := strings.Cut(block, "```")
	if !found {
		t.Fatal("there is no example")
	}
	dir, _, env := siteAt(t, example)
	j, _, err := Open(t.Context(), []string{"--max-attempts", "8", "train.py"}, env, dir)
	if err != nil || len(j.site.locks) != 4 || j.Policy.MaxAttempts != 8 {
		t.Errorf("%+v, %v", j, err)
	}
	if _, _, err := Open(t.Context(), []string{"--max-attempts", "50", "train.py"}, env, dir); !strings.Contains(fmt.Sprint(err), "locked at 8 by "+SiteConfig+":1; only a smaller number is allowed") {
		t.Error(err)
	}
}

// A folder that everybody could write to, and that is mounted read-only, is safe: so Kubernetes mounts a ConfigMap.
func TestReadOnlySiteConfigIsSafe(t *testing.T) {
	needRoot(t)
	_, file, _ := siteAt(t, "locked = [\"recovery.never\"]\n")
	folder := filepath.Dir(file)
	mode(t, folder, 0o777)
	result := make(chan error)
	go func() { // its thread ends with it, and the mount with its thread
		runtime.LockOSThread()
		result <- func() error {
			if err := unix.Unshare(unix.CLONE_FS | unix.CLONE_NEWNS); err != nil {
				return err
			}
			err := errors.Join(unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""), unix.Mount(folder, folder, "", unix.MS_BIND, ""))
			if err == nil {
				err = unix.Mount("", folder, "", unix.MS_REMOUNT|unix.MS_BIND|unix.MS_RDONLY, "")
			}
			if only, why := rootOnly(file); err == nil && !only {
				t.Errorf("mounted read-only: %s", why)
			}
			return err
		}()
	}()
	if err := <-result; errors.Is(err, unix.EPERM) {
		t.Skip("this user cannot mount")
	} else if err != nil {
		t.Fatal(err)
	}
	if only, _ := rootOnly(file); only {
		t.Error("a folder that everybody can write to is safe")
	}
}

func TestConfigFile(t *testing.T) {
	for want, env := range map[string]commandline.Environ{
		"/x/gpurun/config.toml":         {"XDG_CONFIG_HOME": "/x", "HOME": "/h"},
		"/h/.config/gpurun/config.toml": {"XDG_CONFIG_HOME": "relative", "HOME": "/h"},
		"":                              {"HOME": ""},
	} {
		if got := ConfigFile(env); got != want {
			t.Errorf("%v: %q, want %q", env, got, want)
		}
	}
}

// A flag is stronger than the train.toml, that than the user's configuration, and that
// than the default, each key by itself.
func TestPrecedenceOfPolicy(t *testing.T) {
	dir, env := typedAt(t)
	t.Chdir(dir)
	put(t, filepath.Join(dir, ".config/gpurun/config.toml"), `
[recovery]
mode = "off"
climb = false
prefer = "tree"
max_attempts = 3
never = ["nvme"]
nvme_path = "swap"
restart_from_zero = "5m"
[limits]
device_memory = "1GiB"
`)
	put(t, filepath.Join(dir, "train.toml"), "[job]\nscript = \"train.py\"\n[recovery]\nmax_attempts = 4\nnumerics = \"any\"\nnever = [\"shard\"]\n[limits]\ndevice_memory = \"2GiB\"\n")
	put(t, filepath.Join(dir, "plain.toml"), "[job]\nscript = \"train.py\"\n")
	configured := defaults().Policy
	configured.Mode, configured.MaxAttempts, configured.Never, configured.RestartFromZero = "off", 3, []string{"nvme"}, 5*60e9
	configured.Speedup, configured.Prefer = false, "tree"
	configured.NVMePath = filepath.Join(dir, ".config/gpurun/swap")
	for line, want := range map[string]struct {
		change func(*strategy.Policy)
		bytes  int64
		said   bool
	}{
		"python train.py": {func(*strategy.Policy) {}, 1 << 30, false},
		"train.py":        {func(*strategy.Policy) {}, 1 << 30, false},
		"plain.toml":      {func(*strategy.Policy) {}, 1 << 30, false},
		"train.toml":      {func(r *strategy.Policy) { r.MaxAttempts, r.Numerics, r.Never = 4, "any", []string{"shard"} }, 2 << 30, true},
		"--mode ladder --max-attempts 9 --device-memory 3GiB train.toml": {func(r *strategy.Policy) {
			r.Mode, r.MaxAttempts, r.Numerics, r.Never = "ladder", 9, "any", []string{"shard"}
		}, 3 << 30, true},
		"train.toml --never precision --never=nvme,micro-batch": {func(r *strategy.Policy) {
			r.MaxAttempts, r.Numerics, r.Never = 4, "any", []string{"precision", "nvme", "micro-batch"}
		}, 2 << 30, true},
		"--numerics preserve uv run train.py": {func(r *strategy.Policy) { r.Numerics = "preserve" }, 1 << 30, true},
	} {
		j, _, err := Open(t.Context(), strings.Fields(line), env, dir)
		if err != nil {
			t.Errorf("%s: %v", line, err)
			continue
		}
		recovery := configured
		recovery.NumericsSaid = want.said
		want.change(&recovery)
		if diff := cmp.Diff(recovery, j.Policy); diff != "" || j.DeviceMemory != want.bytes {
			t.Errorf("%s: %d bytes (-want +got):\n%s", line, j.DeviceMemory, diff)
		}
		p := &Prepared{Resolved: Resolved{Inspected: Inspected{Job: *j}}}
		if policy := p.Policy(); policy.NumericsSaid != want.said || policy.MaxAttempts != recovery.MaxAttempts {
			t.Errorf("%s: policy %+v", line, policy)
		}
	}
	put(t, filepath.Join(dir, ".config/gpurun/config.toml"), "[recovery]\nnumerics = \"mixed-precision\"\n")
	if j, _, err := Open(t.Context(), []string{"train.py"}, env, dir); err != nil || !j.Policy.NumericsSaid {
		t.Errorf("numerics in the configuration: %v, %+v", err, j)
	}
}

// The mode of one's own configuration holds, and a word before the command outranks it.
func TestLastModeCounts(t *testing.T) {
	dir, env := typedAt(t)
	put(t, filepath.Join(dir, ".config/gpurun/config.toml"), "[recovery]\nmode = \"off\"\n")
	for line, want := range map[string]string{"train.py": "off", "--mode ladder train.py": "ladder", "--mode predict train.py": "predict"} {
		j, _, err := Open(t.Context(), strings.Fields(line), env, dir)
		if err != nil || string(j.Policy.Mode) != want {
			t.Errorf("%s: %v, %q", line, err, j.Policy.Mode)
		}
	}
}

// The configuration is judged as a train.toml is, with positions.
func TestConfigIsJudged(t *testing.T) {
	dir, env := typedAt(t)
	file := filepath.Join(dir, ".config/gpurun/config.toml")
	for text, want := range map[string]string{
		"[recovery]\nmod = \"off\"\n":                             `2:1: recovery.mod: unknown key (did you mean "mode"?)`,
		"[recovry]\n":                                             `1:2: recovry: unknown table (did you mean "recovery"?)`,
		"[launch]\nranks = \"self\"\n":                            "2:1: launch.ranks: unknown key; it belongs in a train.toml: it is about one job",
		"[fits]\nshared = \"/x\"\n":                               "1:2: fits: unknown table; the tables are launch, limits, metrics, notify, recovery",
		"locked = [\"recovery.never\"]\n":                         "1:1: locked: unknown key",
		"[recovery]\nmode = \"lader\"\n":                          `2:8: recovery.mode: unknown value "lader"`,
		"[limits]\ndevice_memory = \"24G\"\n":                     `2:17: limits.device_memory: "24G" has an unknown unit`,
		"[notify]\nstyle = \"json\"\n":                            "2:1: notify.style: was removed, since each event is sent as gpurun's own JSON",
		"notify = 3\n":                                            "1:10: notify: want a table, found a whole number",
		"recovery = 3\n":                                          "1:12: recovery: want a table",
		"[recovery]\nmode = \"off\nx\n":                           "2:12: not TOML",
		"[recovery]\nnever = [\"checkpoint\"]\n[limits]\nx = 1\n": "4:1: limits.x: unknown key",
	} {
		put(t, file, text)
		_, _, err := Open(t.Context(), []string{"train.py"}, env, dir)
		var wrong *Error
		if !errors.As(err, &wrong) || !strings.Contains(err.Error(), file+":"+want) || wrong.File != file {
			t.Errorf("%q: %v, want %s", text, err, want)
		}
	}
	testenv.Check(t, os.Remove(file))
	testenv.Check(t, os.Mkdir(file, 0o755))
	if _, _, err := Open(t.Context(), []string{"train.py"}, env, dir); err == nil || errext.Hint(err) == "" {
		t.Errorf("a folder: %v", err)
	}
	for _, home := range []string{"/dev/null", filepath.Join(dir, "nowhere")} {
		if _, _, err := Open(t.Context(), []string{"train.py"}, append(env, "HOME="+home), dir); err != nil {
			t.Errorf("a home that is none (%s): %v", home, err)
		}
	}
}
