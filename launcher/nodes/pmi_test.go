package nodes

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gpurun/gpurun/launcher/commandline"
	"github.com/gpurun/gpurun/launcher/errext"
)

// A step is Slurm's side of PMI-2, for one step.
type step struct {
	size    int
	mu      sync.Mutex
	values  map[string]string
	fenced  int
	all     chan struct{} // closed when all tasks have fenced
	serving sync.WaitGroup
	answer  func(cmd, text string) string // stands in for an answer, where it gives one
}

func newStep(t *testing.T, size int) *step {
	s := &step{size: size, values: map[string]string{}, all: make(chan struct{})}
	t.Cleanup(s.serving.Wait)
	return s
}

// task is the environment of one of its tasks, with a separate connection.
func (s *step) task(t *testing.T, rank int) commandline.Environ {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	f := os.NewFile(uintptr(fds[1]), "slurmstepd")
	defer f.Close()
	conn, err := net.FileConn(f)
	if err != nil {
		t.Fatal(err)
	}
	s.serving.Go(func() { defer conn.Close(); s.serve(bufio.NewReader(conn), conn) })
	return commandline.Environ{
		"PMI_FD": strconv.Itoa(fds[0]), "PMI_JOBID": "7.0", "PMI_RANK": strconv.Itoa(rank), "PMI_SIZE": strconv.Itoa(s.size), "SLURM_JOB_ID": "7", "SLURM_STEP_ID": "0",
	}
}

func (s *step) serve(in *bufio.Reader, out io.Writer) {
	if line, err := in.ReadString('\n'); err != nil || line != "cmd=init pmi_version=2 pmi_subversion=0\n" {
		return
	}
	fmt.Fprint(out, "cmd=response_to_init pmi_version=2 pmi_subversion=0 rc=0\n")
	for {
		text, err := readAnswer(in)
		if err != nil {
			return
		}
		said := parseAnswer(text)
		answer := s.say(said)
		if s.answer != nil {
			if other := s.answer(said["cmd"], answer); other != "" {
				fmt.Fprint(out, other)
				continue
			}
		}
		fmt.Fprintf(out, "%6d%s", len(answer), answer)
	}
}

func (s *step) say(said map[string]string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	done := "cmd=" + said["cmd"] + "-response;rc=0;"
	switch said["cmd"] {
	case "kvs-put":
		s.values[said["key"]] = said["value"]
	case "kvs-fence":
		if s.fenced++; s.fenced == s.size {
			close(s.all)
		}
		s.mu.Unlock()
		<-s.all
		s.mu.Lock()
	case "kvs-get":
		value, found := s.values[said["key"]]
		if !found {
			return done + "found=FALSE;"
		}
		return done + "found=TRUE;value=" + strings.ReplaceAll(value, ";", ";;") + ";"
	}
	return done
}

func TestTrustBySlurm(t *testing.T) {
	const nodes = 3
	s := newStep(t, nodes)
	all := make([]*Credentials, nodes)
	var trusted sync.WaitGroup
	for node := range nodes {
		vars := s.task(t, nodes-1-node) // Slurm's number of a task is not that of its node everywhere
		trusted.Go(func() {
			c, err := Trust(t.Context(), TrustOptions{Run: "run", Node: node, Nodes: nodes, Environ: vars})
			if err != nil {
				t.Error(err)
			}
			all[node] = c
		})
	}
	trusted.Wait()
	s.serving.Wait() // Slurm's connections are closed
	if t.Failed() {
		return
	}
	port := freePort(t)
	links, err := Listen(t.Context(), all[0], port)
	if err != nil {
		t.Fatal(err)
	}
	defer links.Close()
	for node := 1; node < nodes; node++ {
		follower, err := NewDialer(all[node], "127.0.0.1", port).Dial(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		head, err := links.Accept(t.Context())
		if err != nil || head.Peer() != node {
			t.Errorf("node %d: %v", node, err)
		}
		follower.Close()
	}
	other := freePort(t) // where a follower passes for the head
	posing, err := Listen(t.Context(), all[1], other)
	if err != nil {
		t.Fatal(err)
	}
	defer posing.Close()
	if _, err := NewDialer(all[2], "127.0.0.1", other).Dial(t.Context()); !errors.Is(err, errNotHead) {
		t.Errorf("a follower in the head's place: %v", err)
	}
	stranger := credentialsOf(t, testSecret, "run", 1, nodes)
	if _, err := NewDialer(stranger, "127.0.0.1", port).Dial(t.Context()); !errors.Is(err, ErrRefused) {
		t.Errorf("one that Slurm does not know: %v", err)
	}
	stranger.trusts = all[1].trusts // it knows the head, and the head not it
	if _, err := NewDialer(stranger, "127.0.0.1", port).Dial(t.Context()); err == nil {
		t.Error("one that Slurm does not know got through")
	}
}

// Slurm's variables mean nothing where they are another step's, or another protocol's.
func TestPMIOfAnotherStep(t *testing.T) {
	with := func(change commandline.Environ) commandline.Environ {
		return commandline.Environ{"PMI_FD": "", "PMI_JOBID": "7.0", "PMI_RANK": "0", "PMI_SIZE": "2", "SLURM_JOB_ID": "7", "SLURM_STEP_ID": "0"}.With(change)
	}
	null, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	s := newStep(t, 2)
	live := s.task(t, 0)["PMI_FD"]
	for what, vars := range map[string]commandline.Environ{
		"no descriptor": with(nil), "a word": with(commandline.Environ{"PMI_FD": "x"}), "the standard input": with(commandline.Environ{"PMI_FD": "0"}),
		"closed": with(commandline.Environ{"PMI_FD": "999"}), "a file": with(commandline.Environ{"PMI_FD": strconv.Itoa(int(null.Fd()))}),
		"another job": with(commandline.Environ{"PMI_FD": live, "SLURM_JOB_ID": "8"}), "another step": with(commandline.Environ{"PMI_FD": live, "SLURM_STEP_ID": "1"}),
		"no Slurm": with(commandline.Environ{"PMI_FD": live, "SLURM_JOB_ID": ""}),
	} {
		if p := openPMI(vars); p != nil {
			t.Errorf("%s: it is taken", what)
		}
	}
	if _, err := null.Stat(); err != nil {
		t.Errorf("a file that was somebody else's: %v", err)
	}
	p := openPMI(with(commandline.Environ{"PMI_FD": live}))
	if p == nil {
		t.Fatal("ours is not taken")
	}
	defer p.close()
	if applies, err := new(Credentials).bySlurm(t.Context(), TrustOptions{Nodes: 3}, p); applies || err != nil {
		t.Errorf("a step with another number of tasks: %v, %v", applies, err)
	}
}

// Slurm's answers, and missing answers, are reported correctly.
func TestSlurmFails(t *testing.T) {
	for what, test := range map[string]struct {
		at, answer, want string
	}{
		"refused":      {"kvs-put", "    33cmd=kvs-put-response;rc=1;errmsg=", "refused"},
		"no length":    {"kvs-fence", "length", "is not a length"},
		"too long":     {"kvs-get", "999999", "is not a length"},
		"no card":      {"kvs-get", "    36cmd=kvs-get-response;rc=0;value=xyz;;", "no card"},
		"nothing said": {"kvs-get", "    25cmd=kvs-get-response;rc=0;", "no card"},
	} {
		s := newStep(t, 1)
		s.answer = func(cmd, _ string) string {
			if cmd == test.at {
				return test.answer
			}
			return ""
		}
		_, err := Trust(t.Context(), TrustOptions{Run: "run", Nodes: 1, Environ: s.task(t, 0)})
		if err == nil || !strings.Contains(err.Error(), test.want) || errext.Code(err, 2) != 75 {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// A node that never comes is awaited no longer than the caller's limit.
func TestANodeThatDoesNotComeToSlurm(t *testing.T) {
	s := newStep(t, 2)
	why := errors.New("enough")
	ctx, stop := context.WithCancelCause(t.Context())
	vars := s.task(t, 0)
	s.answer = func(cmd, _ string) string { return "" }
	done := make(chan error)
	go func() {
		_, err := Trust(ctx, TrustOptions{Run: "run", Nodes: 2, Environ: vars})
		done <- err
	}()
	stop(why)
	if err := <-done; !errors.Is(err, why) {
		t.Errorf("%v", err)
	}
	close(s.all)
}

// Slurm has done with a task once that has ended an exchange.
func TestASecondExchange(t *testing.T) {
	s := newStep(t, 1)
	vars := s.task(t, 0)
	fd, _ := strconv.Atoi(vars["PMI_FD"])
	if err := unix.Shutdown(fd, unix.SHUT_RDWR); err != nil {
		t.Fatal(err)
	}
	_, err := Trust(t.Context(), TrustOptions{Run: "run", Nodes: 1, Environ: vars})
	if err == nil || !strings.Contains(err.Error(), "one exchange") || !strings.Contains(errext.Hint(err), "srun") || errext.Code(err, 2) != 2 {
		t.Errorf("%v (%s)", err, errext.Hint(err))
	}
}

// Two gpuruns that both believe to be the same node are found.
func TestTwoOfOneNode(t *testing.T) {
	s := newStep(t, 2)
	errs := make(chan error)
	for rank := range 2 {
		vars := s.task(t, rank)
		go func() {
			_, err := Trust(t.Context(), TrustOptions{Run: "run", Nodes: 2, Environ: vars})
			errs <- err
		}()
	}
	if one, two := <-errs, <-errs; one == nil || two == nil {
		t.Errorf("%v, %v", one, two)
	}
}

func FuzzPMI(f *testing.F) {
	f.Add("    25cmd=kvs-get-response;rc=0;")
	f.Add("    40cmd=kvs-get-response;rc=0;value=a;;b|::1,;")
	f.Add("999999")
	f.Fuzz(func(t *testing.T, text string) {
		frame, err := readAnswer(strings.NewReader(text))
		if err != nil {
			return
		}
		if c, err := readCard(parseAnswer(frame)["value"]); err == nil {
			if again, err := readCard(c.String()); err != nil || again.String() != c.String() {
				t.Errorf("%v is read as %v, %v", c, again, err)
			}
		}
	})
}
