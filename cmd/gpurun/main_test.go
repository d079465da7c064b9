package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	"github.com/rogpeppe/go-internal/txtar"

	"github.com/gpurun/gpurun/launcher/job"
	"github.com/gpurun/gpurun/launcher/ranks"
	"github.com/gpurun/gpurun/test/testenv"
)

// TestMain lets the test binary be gpurun: scripts start it under that name, and
// it starts itself again as the guard of the ranks.
func TestMain(m *testing.M) {
	ranks.MaybeGuard()
	var tests testscript.TestingM = m
	if filepath.Base(os.Args[0]) != "gpurun" {
		tests = testenv.Isolate(m)
	}
	testscript.Main(tests, map[string]func(){
		"gpurun": func() {
			job.SiteConfig = os.Getenv("GPURUN_TEST_SITE") // only the test binary reads it
			os.Exit(Main(os.Args, os.Stdin, os.Stdout, os.Stderr))
		},
	})
}

// placeVariables are empty in the tests, which run as on a plain host without GPUs, whatever the machine is.
var placeVariables = []string{"CUDA_VISIBLE_DEVICES", "PET_NNODES", "SLURM_JOB_ID", "KUBERNETES_SERVICE_HOST", "VIRTUAL_ENV", "CONDA_PREFIX"}

// TestScripts runs testdata/script: one promise a script. Trainers in it are small
// shell programs, so that every way to fail can be had at will; that the promises
// hold with PyTorch itself is shown by TestQuickstart. A file has one script, or several
// about one topic, each behind a line "-- script: NAME --", with its files.
func TestScripts(t *testing.T) {
	python := testenv.Python(t)
	update := os.Getenv("UPDATE") != ""
	scripts := separateScripts(t, update)
	saved := &savedOutput{}
	t.Cleanup(func() {
		saved.check(t, len(scripts))
		if n := validated.Load(); int(saved.scripts.Load()) == len(scripts) && n < 500 {
			t.Errorf("%d documents were validated, want 500", n)
		}
	})
	testscript.Run(t, testscript.Params{
		Files:               scripts,
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		UpdateScripts:       update,
		Setup: func(env *testscript.Env) error {
			for _, name := range placeVariables {
				env.Setenv(name, "")
			}
			env.Setenv("PYTHON_EXEC", python)
			env.Setenv("XDG_STATE_HOME", filepath.Join(env.WorkDir, ".state")) // of this script alone
			env.Defer(func() { saved.compare(env) })
			env.Defer(func() { checkRunDirs(env) })
			return nil
		},
		Condition: func(name string) (bool, error) {
			if name != "root" {
				return false, fmt.Errorf("unknown condition %q", name)
			}
			return os.Geteuid() == 0, nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"exits":   cmdExits,
			"json":    cmdJSON,
			"runfile": cmdRunFile,
			"waitfor": cmdWaitFor,
			"signal":  cmdSignal,
			"gone":    cmdGone,
		},
	})
}

// beforeScript marks the scripts in a file that has several.
const beforeScript = "script: "

// separateScripts writes each script into a file of a temporary folder, and lists these. With update, it joins them again
// at the end of the test.
func separateScripts(t *testing.T, update bool) (scripts []string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join("testdata", "script", "*.txtar"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no scripts: %v", err)
	}
	folder := t.TempDir()
	for _, file := range files {
		archive, err := txtar.ParseFile(file)
		testenv.Check(t, err)
		if len(archive.Files) == 0 || !strings.HasPrefix(archive.Files[0].Name, beforeScript) {
			scripts = append(scripts, file)
			continue
		}
		var names []string
		script := &txtar.Archive{}
		write := func() {
			if len(names) > 0 {
				writeFile(t, names[len(names)-1], string(txtar.Format(script)))
			}
		}
		for _, f := range archive.Files {
			if name, begins := strings.CutPrefix(f.Name, beforeScript); begins {
				write()
				names = append(names, filepath.Join(folder, name+".txtar"))
				script = &txtar.Archive{Comment: f.Data}
				continue
			}
			script.Files = append(script.Files, f)
		}
		write()
		scripts = append(scripts, names...)
		if update {
			t.Cleanup(func() { joinScripts(t, file, names) })
		}
	}
	return scripts
}

// joinScripts writes scripts into one file.
func joinScripts(t *testing.T, file string, scripts []string) {
	var all strings.Builder
	for _, name := range scripts {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Error(err)
			return
		}
		fmt.Fprintf(&all, "-- %s%s --\n%s", beforeScript, strings.TrimSuffix(filepath.Base(name), ".txtar"), text)
	}
	writeFile(t, file, all.String())
}

// exits CODE gpurun ARGS… runs gpurun and wants that exit code.
func cmdExits(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: exits CODE COMMAND ARGS…")
	}
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	got := 0
	if err := ts.Exec(args[1], args[2:]...); err != nil {
		var exit interface{ ExitCode() int }
		if e, ok := err.(interface{ ExitCode() int }); ok {
			exit = e
		} else {
			ts.Fatalf("%s: %v", args[1], err)
		}
		got = exit.ExitCode()
	}
	if got != want {
		ts.Fatalf("exit code %d, want %d", got, want)
	}
	if args[1] == "gpurun" && ts.Getenv("GPURUN") != "off" {
		ts.Check(checkOutput(args[1:], ts.ReadFile("stdout")))
	}
}

// runDirOf is the one run directory below .gpurun, or a named one.
func runDirOf(ts *testscript.TestScript) string {
	runs, err := filepath.Glob(ts.MkAbs(".gpurun/*/*"))
	ts.Check(err)
	if len(runs) != 1 {
		ts.Fatalf("%d run directories: %v", len(runs), runs)
	}
	return runs[0]
}

// runfile NAME DEST copies a file of the one run directory; with !, it must not
// be there.
func cmdRunFile(ts *testscript.TestScript, neg bool, args []string) {
	text, err := os.ReadFile(filepath.Join(runDirOf(ts), args[0]))
	if neg {
		if err == nil {
			ts.Fatalf("%s is there", args[0])
		}
		return
	}
	ts.Check(err)
	ts.Check(os.WriteFile(ts.MkAbs(args[1]), text, 0o644))
}

// json FILE PATH WANT looks a value up in a JSON file: "attempts.0.cause". The
// file may be stdout or hold several lines; then the last counts.
func cmdJSON(ts *testscript.TestScript, neg bool, args []string) {
	if len(args) != 3 {
		ts.Fatalf("usage: json FILE PATH WANT")
	}
	text := strings.TrimSpace(ts.ReadFile(args[0]))
	var v any
	if json.Unmarshal([]byte(text), &v) != nil {
		lines := strings.Split(text, "\n")
		ts.Check(json.Unmarshal([]byte(lines[len(lines)-1]), &v))
	}
	for _, key := range strings.Split(args[1], ".") {
		switch node := v.(type) {
		case map[string]any:
			next, ok := node[key]
			if !ok {
				ts.Fatalf("%s: no %q in %v", args[1], key, node)
			}
			v = next
		case []any:
			i, err := strconv.Atoi(key)
			if err != nil || i >= len(node) {
				ts.Fatalf("%s: no element %q of %d", args[1], key, len(node))
			}
			v = node[i]
		default:
			ts.Fatalf("%s: %v has no %q", args[1], v, key)
		}
	}
	got, err := json.Marshal(v)
	ts.Check(err)
	if s, ok := v.(string); ok {
		got = []byte(s)
	}
	if (string(got) == args[2]) == neg {
		ts.Fatalf("%s = %s, want %s", args[1], got, args[2])
	}
}

// until asks again and again, for at most three minutes: it is a bound for a
// failing test, not a time that a passing one waits.
func until(ts *testscript.TestScript, what string, ok func() bool) {
	for deadline := time.Now().Add(3 * time.Minute); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		if ok() {
			return
		}
	}
	ts.Fatalf("waited in vain for %s", what)
}

// waitfor FILE waits until a file is there and not empty.
func cmdWaitFor(ts *testscript.TestScript, _ bool, args []string) {
	until(ts, args[0], func() bool {
		info, err := os.Stat(ts.MkAbs(args[0]))
		return err == nil && info.Size() > 0
	})
}

func pidIn(ts *testscript.TestScript, file string) int {
	pid, err := strconv.Atoi(strings.TrimSpace(ts.ReadFile(file)))
	ts.Check(err)
	return pid
}

// signal NUMBER PIDFILE sends a signal to the process that a file names.
func cmdSignal(ts *testscript.TestScript, _ bool, args []string) {
	number, err := strconv.Atoi(args[0])
	ts.Check(err)
	ts.Check(syscall.Kill(pidIn(ts, args[1]), syscall.Signal(number)))
}

// gone PIDFILE waits until the process that a file names is gone.
func cmdGone(ts *testscript.TestScript, _ bool, args []string) {
	pid := pidIn(ts, args[0])
	until(ts, fmt.Sprintf("the end of process %d", pid), func() bool {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		return err != nil || strings.Contains(string(stat), ") Z ")
	})
}
