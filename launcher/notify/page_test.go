package notify

import (
	"bytes"
	"encoding/json"
	"os/exec"
	"slices"
	"testing"

	"github.com/gpurun/gpurun/test/testenv"
)

// shownBlock returns the one block of docs/notifications.md in a language.
func shownBlock(t *testing.T, lang string) string {
	t.Helper()
	blocks, err := testenv.Blocks(testenv.Page(t, "docs/notifications.md"))
	if err != nil {
		t.Fatal(err)
	}
	blocks = slices.DeleteFunc(blocks, func(b testenv.Block) bool { return b.Lang != lang })
	if len(blocks) != 1 {
		t.Fatalf("%d blocks of %s", len(blocks), lang)
	}
	return blocks[0].Text
}

// The example of a message has the fields of a message, in their order and types.
func TestShownMessage(t *testing.T) {
	var message Notification
	if err := json.Unmarshal([]byte(shownBlock(t, "json")), &message); err != nil {
		t.Fatal(err)
	}
	got, err := message.encode(nil)
	var want bytes.Buffer
	if err == nil {
		err = json.Compact(&want, []byte(shownBlock(t, "json")))
	}
	if err != nil || string(got) != want.String() {
		t.Errorf("the page shows %s\na message is  %s, %v", want.String(), got, err)
	}
}

// The example of a receiver accepts gpurun's signature, and no other one.
func TestShownReceiver(t *testing.T) {
	message := []byte(shownBlock(t, "json"))
	for key, want := range map[string]string{"key": "True\n", "other": "False\n"} {
		script := "import sys\nsecret, body = b'key', sys.stdin.buffer.read()\nheaders = {'X-Gpurun-Signature': 'sha256=' + sys.argv[1]}\n" + shownBlock(t, "python") + "print(genuine)\n"
		cmd := exec.Command(testenv.Python(t), "-c", script, signature(message, key))
		cmd.Stdin = bytes.NewReader(message)
		if out, err := cmd.CombinedOutput(); err != nil || string(out) != want {
			t.Errorf("signed with %q: %v, %s", key, err, out)
		}
	}
}
