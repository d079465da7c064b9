package nodes

import (
	"bufio"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"encoding/hex"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/gpurun/gpurun/launcher/commandline"
	"golang.org/x/sys/unix"
)

const (
	mostPMI   = 64 << 10 // bytes of an answer
	mostAddrs = 8        // addresses on a card: Slurm takes values of up to 1 KiB
)

// A pmi is the connection that `srun --mpi=pmi2` gives each task of a step. Over it Slurm distributes a
// task's values to all other tasks of the step, and only to them.
type pmi struct {
	conn      net.Conn
	in        *bufio.Reader
	job, rank string
	size      int
	spent     bool // Slurm allows one exchange per task, and it has been made
}

// openPMI takes over the connection, so that no child inherits it. It returns nil if there is none, or if the
// variables belong to another step.
func openPMI(vars commandline.Environ) *pmi {
	fd, err := strconv.Atoi(vars["PMI_FD"])
	step := vars["SLURM_JOB_ID"] + "." + vars["SLURM_STEP_ID"]
	if err != nil || fd < 3 || vars["SLURM_JOB_ID"] == "" || vars["PMI_JOBID"] != step {
		return nil
	}
	if _, err := unix.Getpeername(fd); err != nil {
		return nil // a process between Slurm and gpurun has closed it
	}
	f := os.NewFile(uintptr(fd), "PMI_FD")
	defer f.Close()
	conn, err := net.FileConn(f)
	if err != nil {
		return nil
	}
	size, _ := strconv.Atoi(vars["PMI_SIZE"])
	return &pmi{conn: conn, in: bufio.NewReader(conn), job: step, rank: vars["PMI_RANK"], size: size}
}

func (p *pmi) close() {
	if p != nil {
		p.conn.Close()
	}
}

// A card is what a node publishes to the others.
type card struct {
	Fingerprint [sha256.Size]byte
	Addrs       []string // addresses of its machine, in no order
}

func newCard(own tls.Certificate) card {
	c := card{Fingerprint: sha256.Sum256(own.Certificate[0])}
	addrs, _ := net.InterfaceAddrs() // no error: the head is also found by its name
	for _, a := range addrs {
		if ip, ok := a.(*net.IPNet); ok && ip.IP.IsGlobalUnicast() && len(c.Addrs) < mostAddrs {
			c.Addrs = append(c.Addrs, ip.IP.String())
		}
	}
	return c
}

func (c card) String() string {
	return hex.EncodeToString(c.Fingerprint[:]) + "|" + strings.Join(c.Addrs, ",")
}

func readCard(text string) (c card, err error) {
	print, addrs, _ := strings.Cut(text, "|")
	sum, err := hex.DecodeString(print)
	if err != nil || len(sum) != len(c.Fingerprint) {
		return card{}, fmt.Errorf("%.80q is no card of a node", text)
	}
	copy(c.Fingerprint[:], sum)
	for addr := range strings.SplitSeq(addrs, ",") {
		if _, err := netip.ParseAddr(addr); err == nil && len(c.Addrs) < mostAddrs {
			c.Addrs = append(c.Addrs, addr)
		}
	}
	return c, nil
}

// exchange publishes a node's card, waits for those of all nodes, and reads them.
func (p *pmi) exchange(ctx context.Context, node int, own card) ([]card, error) {
	defer p.until(ctx)()
	cards, err := p.talk(node, own)
	if ctx.Err() != nil && err != nil {
		return nil, fmt.Errorf("not all nodes came: %w", context.Cause(ctx))
	}
	return cards, err
}

// until interrupts waits for Slurm when ctx is done.
func (p *pmi) until(ctx context.Context) (done func() bool) {
	return context.AfterFunc(ctx, func() { p.conn.SetDeadline(time.Unix(1, 0)) })
}

func (p *pmi) talk(node int, own card) ([]card, error) {
	for _, request := range []string{
		fmt.Sprintf("cmd=fullinit;pmijobid=%s;pmirank=%s;threaded=FALSE;", p.job, p.rank),
		fmt.Sprintf("cmd=kvs-put;key=gpurun-%d;value=%s;", node, own),
		"cmd=kvs-fence;",
	} {
		if _, err := p.call(request); err != nil {
			return nil, err
		}
	}
	cards := make([]card, p.size)
	for k := range cards {
		answer, err := p.call(fmt.Sprintf("cmd=kvs-get;jobid=%s;srcid=-1;key=gpurun-%d;", p.job, k))
		if err != nil {
			return nil, err
		}
		if cards[k], err = readCard(answer["value"]); err != nil {
			return nil, fmt.Errorf("node %d: %w", k, err)
		}
	}
	if cards[node].Fingerprint != own.Fingerprint {
		return nil, fmt.Errorf("two tasks of the step claim to be node %d", node)
	}
	_, err := p.call("cmd=finalize;")
	return cards, err
}

// begin negotiates version 2 of the protocol, in the syntax of version 1.
func (p *pmi) begin(ctx context.Context) error {
	defer p.until(ctx)()
	if _, err := io.WriteString(p.conn, "cmd=init pmi_version=2 pmi_subversion=0\n"); err != nil {
		return err
	}
	line, err := p.in.ReadSlice('\n')
	if err != nil {
		return err
	}
	answer := strings.Fields(string(line))
	if len(answer) < 2 || answer[0] != "cmd=response_to_init" || answer[1] != "pmi_version=2" && answer[1] != "rc=0" {
		return fmt.Errorf("the answer %.80q is of another protocol", line)
	}
	return nil
}

// call sends a request, and reads the answer. Each is preceded by its length.
func (p *pmi) call(request string) (map[string]string, error) {
	if _, err := fmt.Fprintf(p.conn, "%6d%s", len(request), request); err != nil {
		return nil, err
	}
	text, err := readAnswer(p.in)
	if err != nil {
		return nil, err
	}
	answer := parseAnswer(text)
	if answer["rc"] != "0" {
		return nil, fmt.Errorf("it was refused (rc=%.20q): %.80q", answer["rc"], answer["errmsg"])
	}
	return answer, nil
}

func readAnswer(in io.Reader) (string, error) {
	var head [6]byte
	if _, err := io.ReadFull(in, head[:]); err != nil {
		return "", err
	}
	n, err := strconv.Atoi(strings.TrimSpace(string(head[:])))
	if err != nil || n < 0 || n > mostPMI {
		return "", fmt.Errorf("the answer begins with %q, which is not a length", head)
	}
	text := make([]byte, n)
	_, err = io.ReadFull(in, text)
	return string(text), err
}

// parseAnswer parses "cmd=kvs-get-response;rc=0;value=x;". No value that is used has a semicolon.
func parseAnswer(text string) map[string]string {
	answer := map[string]string{}
	for field := range strings.SplitSeq(text, ";") {
		if name, value, ok := strings.Cut(field, "="); ok {
			answer[name] = value
		}
	}
	return answer
}
