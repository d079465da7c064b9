package ranks

import (
	"errors"
	"io"
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
	"pgregory.net/rapid"

	"github.com/gpurun/gpurun/test/testenv"
)

func TestMessagesArriveAsTheyWere(t *testing.T) {
	ours, file, err := pair()
	testenv.Check(t, err)
	defer ours.conn.Close()
	theirs, err := newLink(file)
	testenv.Check(t, err)
	null, err := os.Open(os.DevNull)
	testenv.Check(t, err)
	defer null.Close()
	text := rapid.Map(rapid.SliceOf(rapid.Byte()), func(b []byte) octets { return octets(b) })
	rapid.Check(t, func(t *rapid.T) {
		want := make([]message, rapid.IntRange(1, 2).Draw(t, "messages"))
		rights := make([]int, len(want))
		for i := range want {
			want[i] = message{
				Kind: messageKind(rapid.Uint8().Draw(t, "kind")),
				Argv: rapid.SliceOfN(text, 1, 2).Draw(t, "argv"),
				Env:  []octets{text.Draw(t, "env")},
				Data: rapid.Int64().Draw(t, "data"),
				PID:  rapid.Int().Draw(t, "pid"),
			}
			rights[i] = rapid.IntRange(0, 3).Draw(t, "rights")
		}
		sent := make(chan error, 1)
		go func() {
			var err error
			for i, m := range want {
				fds := []int{int(null.Fd()), int(null.Fd()), int(null.Fd())}
				err = errors.Join(err, ours.send(m, fds[:rights[i]]...))
			}
			sent <- err
		}()
		for i := range want {
			got, fds, err := theirs.receive()
			testenv.Check(t, err)
			for _, fd := range fds {
				if flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err != nil || flags&unix.FD_CLOEXEC == 0 {
					t.Errorf("descriptor %d would pass to a rank: %v", fd, err)
				}
				unix.Close(fd)
			}
			if diff := cmp.Diff(want[i], got); diff != "" || len(fds) != rights[i] {
				t.Fatalf("message with %d descriptors, want %d (-want +got):\n%s", len(fds), rights[i], diff)
			}
		}
		testenv.Check(t, <-sent)
	})
	theirs.conn.Close()
	if _, _, err := ours.receive(); !errors.Is(err, io.EOF) {
		t.Errorf("after the other end has gone: %v", err)
	}
	if err := ours.send(message{Env: []octets{octets(make([]byte, maxMessage+1))}}); !errors.Is(err, unix.E2BIG) {
		t.Errorf("a message beyond the bound: %v", err)
	}
}
