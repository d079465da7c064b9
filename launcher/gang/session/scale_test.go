package session

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gpurun/gpurun/launcher/environ"
	"github.com/gpurun/gpurun/launcher/gang"
)

// followers, in the environment of this test, makes it the other side: so many nodes in one
// process, and the head's port.
const followers = "GPURUN_TEST_FOLLOWERS"

// TestScale is one head with many nodes, each with a session of its own: how long until all
// have joined, until each has ended with 8 KiB of what it saw, and what the head's memory is.
func TestScale(t *testing.T) {
	if text := os.Getenv(followers); text != "" {
		var nodes, port int
		if _, err := fmt.Sscan(text, &nodes, &port); err != nil {
			t.Fatal(err)
		}
		manyFollowers(t, nodes, port)
		return
	}
	if os.Getenv("GPURUN_LAB") == "" {
		t.Skip("GPURUN_LAB=1 runs it: 1,000 nodes on this machine")
	}
	for _, nodes := range []int{100, 1000} {
		t.Run(fmt.Sprint(nodes), func(t *testing.T) { headOfMany(t, nodes) })
	}
}

func headOfMany(t *testing.T, nodes int) {
	l := newLaunch(t, nodes+1)
	others := exec.Command(os.Args[0], "-test.run=^TestScale$")
	others.Env = append(os.Environ(), fmt.Sprintf("%s=%d %d", followers, nodes, l.port))
	var said bytes.Buffer
	others.Stdout, others.Stderr = &said, &said
	before := memory(t)
	began := time.Now()
	lap := func(what string) {
		t.Logf("%5d nodes: %-28s %8.1f ms", nodes, what, float64(time.Since(began).Microseconds())/1000)
		began = time.Now()
	}
	if err := others.Start(); err != nil {
		t.Fatal(err)
	}
	all := make([]gang.Link, nodes)
	each := func(do func(gang.Link)) {
		var doing sync.WaitGroup
		for _, link := range all {
			doing.Go(func() { do(link) })
		}
		doing.Wait()
	}
	for i := range all {
		var err error
		if all[i], err = l.links.Accept(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	each(func(l gang.Link) { receive[gang.Hello](t, l) })
	lap("joined")
	for range 2 {
		for _, link := range all {
			send(t, link, gang.Stop{Grace: time.Second})
		}
		each(func(l gang.Link) { receive[gang.Note](t, l); receive[gang.Stopped](t, l) })
		lap("stopped, with 8 KiB each")
	}
	t.Logf("%5d nodes: the head has %s, %s before", nodes, memory(t), before)
	each(func(l gang.Link) { send(t, l, gang.Final{}); receive[gang.Bye](t, l) })
	lap("ended")
	if err := others.Wait(); err != nil {
		t.Errorf("%v\n%s", err, said.String())
	}
}

func manyFollowers(t *testing.T, nodes, port int) {
	var running sync.WaitGroup
	for i := range nodes {
		running.Go(func() {
			c, err := Trust(t.Context(), Options{Run: "run", Node: i + 1, Nodes: nodes + 1, Environ: environ.Vars{secretVariable: testSecret}})
			if err != nil {
				t.Error(err)
				return
			}
			if err := follow(t, Dialer(c, "127.0.0.1", port), i+1); err != nil {
				t.Error(err)
			}
		})
	}
	running.Wait()
}

func follow(t *testing.T, d gang.Dialer, node int) error {
	link, err := d.Dial(t.Context())
	if err != nil {
		return err
	}
	defer link.Close()
	if err := link.Send(gang.Hello{Node: node, Host: strings.Repeat("h", 1000)}); err != nil {
		return err
	}
	for {
		m, err := link.Receive(t.Context())
		if err != nil {
			return err
		}
		switch m.(type) {
		case gang.Stop:
			err = link.Send(gang.Note{Text: strings.Repeat("e", 8<<10)})
			if err == nil {
				err = link.Send(gang.Stopped{})
			}
		case gang.Final:
			return link.Send(gang.Bye{})
		}
		if err != nil {
			return err
		}
	}
}

// memory is what this process holds, and held at most.
func memory(t *testing.T) string {
	status, err := os.Open("/proc/self/status")
	if err != nil {
		t.Fatal(err)
	}
	defer status.Close()
	var found []string
	for lines := bufio.NewScanner(status); lines.Scan(); {
		if strings.HasPrefix(lines.Text(), "VmRSS") || strings.HasPrefix(lines.Text(), "VmHWM") {
			found = append(found, strings.Join(strings.Fields(lines.Text()), " "))
		}
	}
	return strings.Join(found, ", ")
}
