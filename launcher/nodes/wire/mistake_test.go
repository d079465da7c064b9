package wire

import (
	"context"
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// A node with another secret learns that the head is there, and the head that the node is. Of
// another launch's node neither does.
func TestAWrongSecretIsNamed(t *testing.T) {
	head := credentialsOf(t, testSecret, "run", 0, 3)
	port := freePort(t)
	links, err := Listen(t.Context(), head, port)
	if err != nil {
		t.Fatal(err)
	}
	defer links.Close()
	other := strings.Repeat("ab", 32)
	for run, named := range map[string]bool{"another run": false, "run": true} {
		_, err := NewDialer(credentialsOf(t, other, run, 2, 3), "127.0.0.1", port).Dial(t.Context())
		if err == nil || errors.Is(err, ErrMistrusted) != named || errors.Is(err, ErrRefused) == named {
			t.Errorf("%s: %v", run, err)
		}
	}
	if got := <-head.Mistakes(); got != (Mistake{Node: 2, Addr: "127.0.0.1"}) || len(head.Mistakes()) > 0 {
		t.Errorf("%+v, and %d more", got, len(head.Mistakes()))
	}
}

// Of two heads of one launch the second finds the first, which learns of it. A head finds no
// other in itself, nor in that of another launch.
func TestASecondHeadIsFound(t *testing.T) {
	first := credentialsOf(t, testSecret, "run", 0, 2)
	port := freePort(t)
	links, err := Listen(t.Context(), first, port)
	if err != nil {
		t.Fatal(err)
	}
	defer links.Close()
	for what, c := range map[string]*Credentials{"itself": first, "another run": credentialsOf(t, testSecret, "run2", 0, 2), "another secret": credentialsOf(t, strings.Repeat("ab", 32), "run", 0, 2)} {
		if at := Rival(t.Context(), c, "127.0.0.1", port); at != "" {
			t.Errorf("%s: %s", what, at)
		}
	}
	if at := Rival(t.Context(), credentialsOf(t, testSecret, "run", 0, 2), "127.0.0.1", port); !strings.HasPrefix(at, "127.0.0.1:") {
		t.Errorf("%q", at)
	}
	if got := <-first.Mistakes(); got != (Mistake{Node: 0, Addr: "127.0.0.1"}) || len(first.Mistakes()) > 0 {
		t.Errorf("%+v, and %d more", got, len(first.Mistakes()))
	}
}

// Where the head is there and its secret is not seen, the folder is not shared. The head learns
// of a node that looks.
func TestAFolderThatIsNotSharedIsNamed(t *testing.T) {
	head := credentialsOf(t, testSecret, "run", 0, 2)
	port := freePort(t)
	links, err := Listen(t.Context(), head, port)
	if err != nil {
		t.Fatal(err)
	}
	defer links.Close()
	at := (&Credentials{}).headThere(TrustOptions{Run: "run", Node: 1, Nodes: 2, Head: "127.0.0.1", HeadPort: port})(t.Context())
	if got := <-head.Mistakes(); !strings.HasPrefix(at, "127.0.0.1:") || got.Node != 1 {
		t.Errorf("%q, %+v", at, got)
	}
	path := filepath.Join(t.TempDir(), "x.secret")
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		_, err := awaitSecret(t.Context(), path, func(context.Context) string { return at })
		if took := time.Since(began); err == nil || took > sharedWait/2 || !strings.Contains(err.Error(), "node 0 is there, at "+at+", and the secret that it wrote is not visible here") {
			t.Errorf("%v after %s", err, took)
		}
	})
}
