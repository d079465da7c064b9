package ranks

import (
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// messageKind is the kind of a message between the supervisor and its guard.
type messageKind uint8

const (
	hello      messageKind = iota + 1 // guard: ready
	spawn                             // supervisor: start this; carries stdin, stdout, stderr
	started                           // guard: the answer; carries a pidfd where it succeeded
	exited                            // guard: a child that it started on request has ended
	watchGuard                        // supervisor: the attempt, and the ranks that run already; may carry Options.Ends
	watching                          // guard: the answer, after a first look at those ranks
	asked                             // supervisor: ranks are about to be signalled
	release                           // supervisor: the group is done; reap and exit
)

// octets are a string of any bytes: arguments and environment need not be UTF-8, but JSON's strings must.
type octets string

func (o octets) MarshalText() ([]byte, error) {
	return base64.StdEncoding.AppendEncode(nil, []byte(o)), nil
}

func (o *octets) UnmarshalText(text []byte) error {
	b, err := base64.StdEncoding.AppendDecode(nil, text)
	*o = octets(b)
	return err
}

// convert converts strings to octets, or back.
func convert[To, From ~string](from []From) []To {
	to := make([]To, len(from))
	for i, text := range from {
		to[i] = To(text)
	}
	return to
}

// A message is one message of any kind.
type message struct {
	Kind messageKind

	Path octets // for spawn
	Argv []octets
	Env  []octets
	Dir  octets
	Data int64

	PID   int        // started, exited
	Call  string     // started: the call that failed, empty where none did
	Errno int        // started: why
	End   processEnd // exited

	Run   string     // watch: the marker's value
	Began uint64     // watch: start time of the attempt
	Ranks []identity // watch: the ranks that the guard takes over, if any; release: all
	Asked bool       // watch: ranks have been signalled
}

// maxMessage bounds a message. The kernel takes at most 6 MiB of arguments and
// environment (man 2 execve).
const maxMessage = 16 << 20

// A guardLink is one end of the socket between the supervisor and its guard. Any goroutine may send; only one
// receives.
type guardLink struct {
	conn *net.UnixConn
	mu   sync.Mutex // held while a whole message is sent
}

// pair returns the supervisor's end, and the guard's end as a file for the guard to inherit.
func pair() (*guardLink, *os.File, error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, os.NewSyscallError("socketpair", err)
	}
	theirs := os.NewFile(uintptr(fds[1]), "guard")
	ours, err := newLink(os.NewFile(uintptr(fds[0]), "supervisor"))
	if err != nil {
		theirs.Close()
		return nil, nil, err
	}
	return ours, theirs, nil
}

// newLink makes a link of a socket, and closes the file.
func newLink(f *os.File) (*guardLink, error) {
	defer f.Close()
	conn, err := net.FileConn(f)
	if err != nil {
		return nil, err
	}
	socket, ok := conn.(*net.UnixConn)
	if !ok {
		conn.Close()
		return nil, errors.New("not a unix socket")
	}
	return &guardLink{conn: socket}, nil
}

func (l *guardLink) send(m message, fds ...int) error {
	body, err := json.Marshal(m)
	if err != nil {
		return fmt.Errorf("encode message: %w", err)
	}
	if len(body) > maxMessage {
		return unix.E2BIG
	}
	var rights []byte
	if len(fds) > 0 {
		rights = unix.UnixRights(fds...)
	}
	head := binary.LittleEndian.AppendUint32(nil, uint32(len(body)))
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, _, err := l.conn.WriteMsgUnix(head, rights, nil); err != nil {
		return err
	}
	_, err = l.conn.Write(body)
	return err
}

// giveUp makes a waiting send and every later one fail.
func (l *guardLink) giveUp() { _ = l.conn.SetWriteDeadline(time.Unix(1, 0)) }

// receive returns the next message and its descriptors, which the caller closes. The error is io.EOF when
// the other end is gone.
func (l *guardLink) receive() (message, []int, error) {
	head := make([]byte, 4)
	rights := make([]byte, unix.CmsgSpace(3*4))
	n, r, _, _, err := l.conn.ReadMsgUnix(head, rights)
	if err != nil {
		return message{}, nil, err
	}
	fds := descriptors(rights[:r])
	m, err := l.body(head, n)
	if err != nil {
		for _, fd := range fds {
			unix.Close(fd)
		}
		return message{}, nil, err
	}
	return m, fds, nil
}

func (l *guardLink) body(head []byte, n int) (message, error) {
	if n == 0 {
		return message{}, io.EOF
	}
	if _, err := io.ReadFull(l.conn, head[n:]); err != nil {
		return message{}, err
	}
	size := binary.LittleEndian.Uint32(head)
	if size > maxMessage {
		return message{}, fmt.Errorf("message of %d bytes", size)
	}
	body := make([]byte, size)
	if _, err := io.ReadFull(l.conn, body); err != nil {
		return message{}, err
	}
	var m message
	err := json.Unmarshal(body, &m)
	return m, err
}

func descriptors(rights []byte) []int {
	controls, err := unix.ParseSocketControlMessage(rights)
	if err != nil {
		return nil
	}
	var fds []int
	for _, control := range controls {
		if got, err := unix.ParseUnixRights(&control); err == nil {
			fds = append(fds, got...)
		}
	}
	return fds
}
