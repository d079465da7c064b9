package show

import (
	"bytes"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"unicode"

	"pgregory.net/rapid"

	"github.com/gpurun/gpurun/launcher"
	"github.com/gpurun/gpurun/launcher/mask"
	"github.com/gpurun/gpurun/strategy"
	"github.com/gpurun/gpurun/strategy/cause"
	_ "github.com/gpurun/gpurun/test/testenv"
)

// hostileText is what an attacker would have a terminal do who can name a file, or raise
// an exception: clear the screen, set a title, turn text round, forge a line.
const hostileText = "\x1b[2J\x1b]0;x\a\u009b31m\u202egpj\u2066\u200b\r\ngpurun: summary: trained after 1 attempt in 1s\x00\xff"

// run is the story of a job that fails, with a text in each place that is the job's.
func run(text, checkpoint string, command strategy.Command) []launcher.Event {
	diagnosis := strategy.Diagnosis{Cause: cause.UserError, Fatal: true, Rank: 0, ExitCode: 1, Because: []int{0}, Error: "ModuleNotFoundError: " + text, Advice: text, Device: text}
	skipped := []strategy.Skip{{Remedy: strategy.RemedyShard, Reason: text}}
	decision := strategy.Decision{Outcome: strategy.Failed, Code: 1, Reason: text, Skipped: skipped}
	relaunch := strategy.Decision{Relaunch: true, Reason: text, Next: next, Changed: first.Changed(next)}
	evidence := strategy.Evidence{Started: start, Ended: start, Facts: []strategy.Fact{{
		Source: text, Content: &strategy.Finding{Code: cause.UserError, Raised: true, Text: text, Traceback: []string{text, "  File \"" + text + "\", line 1"}},
	}}}
	return []launcher.Event{
		launcher.Began{Name: text, Recipe: text, Python: text, Place: text, Plan: first, Job: strategy.Job{Ranks: 1}},
		launcher.Noticed{Text: "warning: " + text}, launcher.Started{Plan: first, Command: command, Checkpoint: checkpoint, Diff: "--- a\n+++ b\n+" + text + "\n"},
		launcher.Ended{Evidence: evidence}, launcher.Decided{Diagnosis: diagnosis, Decision: relaunch},
		launcher.Started{N: 1, Plan: next, Command: command}, launcher.Ended{Evidence: evidence}, launcher.Decided{Diagnosis: diagnosis, Decision: decision},
		launcher.Finished{Verdict: launcher.Verdict{Outcome: strategy.Failed, Reason: text, Attempts: []launcher.AttemptSummary{{Plan: first}, {Plan: next, Skipped: skipped, Error: text, Traceback: []string{text}}}}},
	}
}

// Nothing that comes from the job is obeyed by a terminal, or taken for a line of
// gpurun's own.
func TestTerminalGetsNoControlCharacters(t *testing.T) {
	var out bytes.Buffer
	p := &People{W: &out, Dir: "/runs/" + hostileText}
	show(p, run(hostileText, hostileText, strategy.Command{})...)
	for line := range strings.Lines(out.String()) {
		if strings.ContainsFunc(strings.TrimSuffix(line, "\n"), func(r rune) bool { return r != '\t' && !unicode.IsGraphic(r) }) {
			t.Errorf("shown: %q", line)
		}
		if strings.HasPrefix(line, "gpurun: summary: trained") {
			t.Errorf("forged: %q", line)
		}
	}
	if n := strings.Count(out.String(), `\x1b[2J\x1b]0;x\a\x9b31m\u202egpj\u2066\u200b\r\ngpurun: `); n < 8 {
		t.Errorf("shown %d times:\n%s", n, out.String())
	}
	var page bytes.Buffer
	NewPage(&page, nil).Printf("%s: %v\n", hostileText, fmt.Errorf("open %s", hostileText))
	if strings.Count(page.String(), "\n") != 1 || strings.ContainsFunc(page.String()[:page.Len()-1], unicode.IsControl) {
		t.Errorf("a page shows %q", page.String())
	}
}

// JSON is for programs: it has what the job printed to the byte.
func TestJSONIsNotEscapedForTerminals(t *testing.T) {
	var out bytes.Buffer
	show((&JSON{W: &out}), launcher.Noticed{Text: "a\u202eb\x1b"})
	if want := `"text":"a` + "\u202e" + `b\u001b"`; !strings.Contains(out.String(), want) {
		t.Errorf("no %s in %s", want, out.String())
	}
}

// No secret of a command is in any text about its run, not even where the
// job itself prints it, and the hint names where the original command is.
func TestNoSecretIsReported(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		secret := rapid.StringMatching(`[a-z]?[0-9][A-Za-z0-9'"+/=.,@ -]{6,20}[A-Z][0-9]`).Draw(t, "secret")
		name := rapid.SampledFrom([]string{"hub_token", "wandb.api_key", "db-password", "client_secret", "AWS_SECRET_ACCESS_KEY", "login_credential"}).Draw(t, "name")
		command := rapid.SampledFrom([]strategy.Command{
			{Argv: []string{"train.py", "--" + name, secret, "--bs", "4"}},
			{Argv: []string{"train.py", "--" + name + "=" + secret, "--bs", "4"}},
			{Argv: []string{"train.py", "--bs", "4"}, Env: map[string]string{strings.ToUpper(name): secret}},
			{Argv: []string{"sh", "train.sh", "--dsn", "postgres://me:" + strings.NewReplacer(" ", "", "/", "", "'", "", `"`, "").Replace(secret) + "@db/x", "--bs", "4", "--" + name, secret}},
		}).Draw(t, "command")
		key := rapid.SampledFrom([]string{"", "argv", "command", "args", "program"}).Draw(t, "key")
		m := mask.New(command.Argv, command.Env)
		var said, lines bytes.Buffer
		p := &People{W: &said, Dir: "/runs/r1", Propose: func(strategy.Plan, strategy.Arguments, int) (strategy.Proposal, error) {
			return strategy.Proposal{File: "train.toml", Key: key, Words: command.Argv, Env: command.Env}, nil
		}}
		p.Mask = m
		j := (&JSON{W: &lines})
		j.Mask = m
		events := run("login with "+secret+" failed", "/runs/ckpt", command)
		trained := launcher.Finished{Verdict: launcher.Verdict{Outcome: strategy.Trained, Attempts: []launcher.AttemptSummary{{Plan: first}, {N: 1, Plan: next}}}}
		for _, e := range append(events, trained) {
			p.Show(e)
			j.Show(e)
		}
		for _, text := range []string{said.String(), lines.String()} {
			for _, form := range []string{secret, strings.ReplaceAll(secret, "'", `'\''`), strings.ReplaceAll(secret, `"`, `\"`)} {
				if strings.Contains(text, form) {
					t.Fatalf("%q is in:\n%s", form, text)
				}
			}
		}
		if !strings.Contains(said.String(), "to start with this plan next time, ") || !strings.Contains(said.String(), "--bs") || !strings.Contains(said.String(), filepath.Join("/runs/r1", "attempt-1", "command.json")) {
			t.Fatalf("no hint in:\n%s", said.String())
		}
	})
}
