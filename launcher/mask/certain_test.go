package mask

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A secretText has a secret after a name for which any value is one, and how the text is shown. The tests of the hook read
// the same file.
type secretText struct{ Text, Secret, Want string }

func readCases[T any](t *testing.T, name string) (cases []T) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", name+".json"))
	if err == nil {
		err = json.Unmarshal(text, &cases)
	}
	if err != nil {
		t.Fatal(err)
	}
	return cases
}

// After the words that name a secret any value is masked, in the job's text.
func TestAnyValueIsMasked(t *testing.T) {
	for _, c := range readCases[secretText](t, "secrets") {
		if got := (*Masker)(nil).Output(c.Text); got != c.Want {
			t.Errorf("%q becomes\n%q, want\n%q", c.Text, got, c.Want)
		}
	}
}

// gpurun's own sentence around the job's text stays readable, and has the secret no more.
func TestSentencesAroundSecretsStay(t *testing.T) {
	for _, c := range readCases[secretText](t, "secrets") {
		got := (*Masker)(nil).Text("attempt 0: " + (*Masker)(nil).Output(c.Text) + " on rank 0; no change of its settings can fix that")
		if strings.Contains(strings.TrimPrefix(got, "attempt 0: "), c.Secret) && !strings.Contains(c.Want, c.Secret) || !strings.HasSuffix(got, "; no change of its settings can fix that") {
			t.Errorf("%q becomes\n%q", c.Text, got)
		}
	}
}

// What only looks like a secret stays, in the job's text too.
func TestHarmlessTextStays(t *testing.T) {
	for _, text := range readCases[string](t, "harmless") {
		if got := (*Masker)(nil).Output(text); got != text {
			t.Errorf("%q becomes %q", text, got)
		}
	}
}

func TestSecretsInCommandsAndDocuments(t *testing.T) {
	words := []string{"t.py", "--password", "-x1", "--api-key", "7", "-H", "X-Api-Key: k", "--cookie", "a=b; c=d", "password=1", "--header=Authorization: Bearer z"}
	want := []string{"t.py", "--password", "***", "--api-key", "***", "-H", "X-Api-Key: ***", "--cookie", "***", "password=***", "--header=Authorization: Bearer ***"}
	if got := (*Masker)(nil).Words(words); strings.Join(got, "|") != strings.Join(want, "|") {
		t.Errorf("%q", got)
	}
	text := `{"password": 12, "cookies": {"a": ["b"]}, "api_key": null, "x_api_key": "7", "n": 1, "message": "Cookie: a=b; c=d"}`
	if got := string((*Masker)(nil).JSON([]byte(text))); got != `{"password": "***", "cookies": "***", "api_key": null, "x_api_key": "***", "n": 1, "message": "Cookie: ***"}` {
		t.Error(got)
	}
}
