package hook

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gpurun/gpurun/launcher/mask"
	"github.com/gpurun/gpurun/test/testenv"
)

// maskedTexts prints what the hook's rules make of texts.
const maskedTexts = `
import json, sys, types
from inside import base
base.rules = types.ModuleType("rules")
with open(sys.argv[1]) as f:
    exec(f.read(), base.rules.__dict__)
from inside.base.masked import Masked
print(json.dumps(Masked(["learned9"]).copy(json.load(sys.stdin))))
`

// The hook masks the same in its files as gpurun does in its own.
func TestHookMasksAsGpurunDoes(t *testing.T) {
	var cases []struct{ Text, Want string }
	var harmless []string
	readJSON(t, "../mask/testdata/secrets.json", &cases)
	readJSON(t, "../mask/testdata/harmless.json", &harmless)
	texts := append([]string{"learned9 is refused", "at https://me:pw@host/x", "key hf_AbCdEfGhIjKlMnOpQrStUvWx", "-----BEGIN PRIVATE KEY-----\nMIIE\n-----END PRIVATE KEY-----"}, harmless...)
	want := append([]string{"*** is refused", "at https://***@host/x", "key ***", "-----BEGIN PRIVATE KEY-----***-----END PRIVATE KEY-----"}, harmless...)
	for _, c := range cases {
		texts = append(texts, c.Text)
		want = append(want, c.Want)
	}
	var got []string
	rules := filepath.Join(t.TempDir(), "rules.py")
	if err := os.WriteFile(rules, rulesText(), 0o600); err != nil {
		t.Fatal(err)
	}
	input, err := json.Marshal(texts)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(testenv.Python(t), "-c", maskedTexts, rules)
	cmd.Stdin, cmd.Env = bytes.NewReader(input), append(os.Environ(), "PYTHONDONTWRITEBYTECODE=1")
	out, err := cmd.Output()
	if err == nil {
		err = json.Unmarshal(out, &got)
	}
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	for i, text := range texts {
		if again := mask.New(nil, nil, "learned9").Output(text); again != got[i] {
			t.Errorf("%q: gpurun has %q, its hook %q", text, again, got[i])
		}
	}
}

func readJSON(t *testing.T, path string, to any) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err == nil {
		err = json.Unmarshal(text, to)
	}
	if err != nil {
		t.Fatal(err)
	}
}
