package ranks

import (
	"os"
	"slices"
	"testing"

	"golang.org/x/sys/unix"
)

// A process with a handler gets the signal, even below a wrapper; no other process does.
func TestAskReachesTheListeningProcessOfEachRank(t *testing.T) {
	h := newHarness(t)
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	defer r.Close()
	deaf := Rank{Rank: 1, Argv: []string{"/bin/sh", "-c", "read -r line"}, Stdin: r}
	wrapped := h.rank(2, "notices")
	wrapped.Argv = append([]string{"/bin/sh", "-c", `"$@"; true`, "sh"}, wrapped.Argv...)
	g := h.start(StartOptions{}, h.rank(0, "notices"), deaf, wrapped)
	listening := []int{h.readProcesses(1)[0].PID, h.readProcesses(1)[0].PID}
	asked := g.Ask(unix.SIGUSR1)
	if len(asked) != 2 || len(asked[0]) != 1 || len(asked[2]) != 1 {
		t.Fatalf("asked %v of %v", asked, g.PIDs())
	}
	got, told := []int{asked[0][0], asked[2][0]}, []int{h.word("pid"), h.word("pid")}
	slices.Sort(listening)
	slices.Sort(got)
	slices.Sort(told)
	if !slices.Equal(got, listening) || !slices.Equal(told, listening) {
		t.Errorf("asked %v, heard by %v, want %v", got, told, listening)
	}
	if asked[2][0] == g.PIDs()[2] {
		t.Error("the wrapper was asked")
	}
	if s := ProcessState(g.PIDs()[1]); s != "sleeping" {
		t.Errorf("the rank without a handler is %q", s)
	}
	g.Signal(unix.SIGTSTP)
	await(t, "the rank to stop", func() bool { return ProcessState(g.PIDs()[1]) == "stopped" })
	g.Stop(0)
	if s := ProcessState(g.PIDs()[1]); s != "" {
		t.Errorf("a rank that has ended is %q", s)
	}
}
