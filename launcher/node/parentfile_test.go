package node

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/gpurun/gpurun/launcher"
	"github.com/gpurun/gpurun/launcher/commandline"
	"github.com/gpurun/gpurun/launcher/mask"
	"github.com/gpurun/gpurun/strategy"
)

func TestWithErrorCode(t *testing.T) {
	for name, test := range map[string]struct {
		text string
		code int
		want string
	}{
		"an object":      {`{"message":{"message":"KeyError: 1","extraInfo":{"timestamp":"17"}},"more":1}`, -9, `{"message":{"errorCode":-9,"extraInfo":{"timestamp":"17"},"message":"KeyError: 1"},"more":1}`},
		"the older form": {`{"message":"KeyError: 1","timestamp":17}`, 1, `{"message":"KeyError: 1","timestamp":17}`},
		"no code":        {`{"message":{"message":"x"}}`, 0, `{"message":{"message":"x"}}`},
		"null":           {`{"message":null}`, 1, `{"message":null}`},
		"no JSON":        {`{"mess`, 1, `{"mess`},
	} {
		got := withErrorCode([]byte(test.text), test.code)
		if string(got) != test.want {
			t.Errorf("%s: %s, want %s", name, got, test.want)
		}
		if json.Valid([]byte(test.text)) && !json.Valid(got) {
			t.Errorf("%s: no JSON any more", name)
		}
	}
}

// The copy for gpurun's parent has no secrets.
func TestParentGetsNoSecrets(t *testing.T) {
	dir, to, rank := t.TempDir(), filepath.Join(t.TempDir(), "error.json"), 0
	folder := filepath.Join(dir, "attempt-0", "rank0")
	if err := os.MkdirAll(folder, 0o700); err != nil {
		t.Fatal(err)
	}
	const raised = `{"message": {"message": "HTTPError: 401, Authorization: Bearer s3cr3t", "extraInfo": {"py_callstack": "login(token=hubs3cret99)\npassword: pw1", "timestamp": "17"}}}`
	if err := os.WriteFile(filepath.Join(folder, "error.json"), []byte(raised), 0o600); err != nil {
		t.Fatal(err)
	}
	v := launcher.Verdict{Outcome: strategy.Failed, Attempts: []launcher.AttemptSummary{{Rank: &rank}}}
	m := mask.New([]string{"train.py", "--hub_token", "hubs3cret99"}, nil)
	if err := TellParent(commandline.Environ{errorFileVariable: to}, dir, v, strategy.Evidence{}, m); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(to)
	if err != nil || !json.Valid(text) || regexp.MustCompile(`s3cr3t|hubs3cret99|pw1`).Match(text) || !strings.Contains(string(text), "HTTPError: 401") {
		t.Errorf("%s, %v", text, err)
	}
}
