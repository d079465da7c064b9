package mask

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/gpurun/gpurun/test/testenv"
)

// noSecrets are arguments and variables as frameworks have them: Trainer, TRL,
// Megatron-LM, torchtitan, Axolotl, LLaMA-Factory, diffusers, timm, vLLM's, Hydra.
var noSecrets = []string{
	"--pad_token=<pad>", "--pad_token <|endoftext|>", "--eos_token </s>", "--unk-token [UNK]", "--mask_token=[MASK]", "--additional_special_tokens <a>,<b>",
	"--max_tokens 4096", "--max-tokens=8k", "--tokenizer meta-llama/Llama-3.1-8B", "--tokenizer_name_or_path=gpt2", "--tokenizer-type HuggingFaceTokenizer", "--tokenizer-model /data/tok.model",
	"--sort_key length", "--sort-key=input_ids", "--use_auth_token True", "--use_auth_token=false", "--token_type_ids 0", "--num-tokens-per-batch 65536",
	"--instance_prompt", "--placeholder_token <cat-toy>", "--initializer_token toy", "--placeholder_token=sks", "--modifier_token=<new1>", "--trigger_token ohwx",
	"--text_key text", "--label-key=label", "--json-keys text", "--image_key image", "--caption_key=caption_0", "--dataset_text_key content",
	"--data-key train", "--metric_key eval_loss", "--monitor-key=val/loss", "--key_padding_mask true", "--num_key_value_heads 8", "--qk-layernorm",
	"--secret_size 64", "--keyboard us", "--monkey_patch none", "--hotkey_file /x/y", "--hub_token $HF_TOKEN", "--wandb_key ${WANDB_API_KEY}",
	"--ssh-key ~/.ssh/id_ed25519", "--ssl-key=/etc/ssl/private/server.key", "--credential /run/secrets/gcp.json", "--token-file /run/token", "--password_file=pw.txt",
	"--hub_model_id me/model", "--hub_strategy every_save", "--push_to_hub", "--token 4096", "--key 3", "--api_key none", "--output_dir /runs/token=a/key=b",
	"--data_path s3://bucket/train", "--data-path abfss://container@account.dfs.core.windows.net/x", "--init_method tcp://127.0.0.1:29500", "--repo git@github.com:o/r", "--repo ssh://git@github.com/o/r.git",
	"trainer.logger.key=loss", "+model.tokenizer.pad_token=<pad>", "~data.key", "dataset.kwargs={key:text,split:train}", "--dataset_args key=text,split=train",
	"--lr 1e-4", "--fp16_opt_level O2", "--seed 1234567890", "--run_name hf_accelerate_benchmark", "--module hf_transformersbenchmark", "--model sk-learn-baseline", "--task task-0123456789abcdef0123",
	"TOKENIZERS_PARALLELISM=false", "HF_HUB_DISABLE_IMPLICIT_TOKEN=1", "HF_TOKEN_PATH=/home/me/.cache/huggingface/token", "GOOGLE_APPLICATION_CREDENTIALS=/etc/gcp.json", "KEY=", "MASTER_ADDR=10.0.0.1",
	"NCCL_SOCKET_IFNAME=eth0", "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True", "CUDA_VISIBLE_DEVICES=0,1,2,3", "SSH_AUTH_SOCK=/tmp/ssh-a/agent.1", "WANDB_PROJECT=x", "--stop_token=<|im_end|>",
}

// What is no secret stays as it is, as words, as a text, and in a journal's line.
func TestNothingElseIsMasked(t *testing.T) {
	if len(noSecrets) < 60 {
		t.Fatalf("%d arguments", len(noSecrets))
	}
	for _, text := range noSecrets {
		words := strings.Fields(text)
		if got := (*Masker)(nil).Words(words); !slices.Equal(got, words) {
			t.Errorf("%q becomes %q", words, got)
		}
		if got := (*Masker)(nil).Text("attempt 1: " + text + " (x)"); got != "attempt 1: "+text+" (x)" {
			t.Errorf("text: %q", got)
		}
		if got := (*Masker)(nil).Config("+" + text + "\n"); got != "+"+text+"\n" {
			t.Errorf("diff: %q", got)
		}
		line, err := json.Marshal(map[string]any{"argv": append([]string{"train.py"}, words...), "text": text, "traceback": []string{text}})
		testenv.Check(t, err)
		if got := (*Masker)(nil).JSON(line); string(got) != string(line) {
			t.Errorf("json: %s", got)
		}
		if m := New(words, nil); m != nil {
			t.Errorf("%q has secrets: %s", words, m.values)
		}
	}
}

// Sentences, tracebacks and configurations as they really are stay readable.
func TestTextsStayReadable(t *testing.T) {
	for _, text := range []string{
		"KeyError: 'text'", "ValueError: unexpected token: <eos>", "train.toml:12:5: recovery.mod: unknown key (did you mean \"mode\"?)",
		"job.key: unknown key (did you mean \"env\"?)", "Missing key: base_model.model.layers.31.mlp.down_proj.lora_A.weight",
		"    rows.sort(key=lambda r: r[0])", "    model = load(name, token=args.hub_token, trust=True)", "    key=itemgetter(1)", "    token = self.tokenizer.decode(ids)", "token == other",
		"std::string key::find", "attempt 0: CUDA out of memory in forward on rank 5 (wanted 2.0 GiB, 0.3 GiB free of 80 GiB) → micro batch 8→4",
		"tokens per second: 12345.6, key: value", "rank0: token:8080", "hf_hub_download and hf_transfer are missing", "secret: 42", "at 2026-01-02T03:04:05Z",
	} {
		if got := (*Masker)(nil).Text(text); got != text {
			t.Errorf("%q becomes %q", text, got)
		}
	}
}

func TestSecretsAreMasked(t *testing.T) {
	for text, want := range map[string]string{
		"--hub_token hf_AbCdEfGhIjKlMnOpQrStUvWx":                         "--hub_token ***",
		"--token=s3cr3tvalue":                                             "--token=***",
		"--password swordfish --lr 1":                                     "--password *** --lr 1",
		"WANDB_API_KEY=0123456789abcdef0123456789abcdef01234567":          "WANDB_API_KEY=***",
		"wandb.api_key=abc123def456":                                      "wandb.api_key=***",
		"MY_KEY=plainword --my_token supersecret --some-key secret-value": "MY_KEY=*** --my_token *** --some-key ***",
		"PGPASSWORD=letmein":                                              "PGPASSWORD=***",
		"--apiKey abcd1234efgh":                                           "--apiKey ***",
		"--key q9w8e7r6t5y4":                                              "--key ***",
		"x AKIAIOSFODNN7EXAMPLE y":                                        "x *** y",
		"xoxb-123456789012-abcdefGHIJ ghp_0123456789abcdef0123456789abcdef0123 sk-proj-abcdefghij0123456789": "*** *** ***",
		"https://me:pa55@host/x http://tok3n@host":                                                           "https://***@host/x http://***@host",
		"postgres://u:p/w@db:5432/x see http://h:80/a@b":                                                     "postgres://***@db:5432/x see http://h:80/a@b",
		`{"api_key": "abc", "b": 1}`:                                                                         `{"api_key": "***", "b": 1}`,
		`os.environ["HF_TOKEN"] = "abc"`:                                                                     `os.environ["HF_TOKEN"] = "***"`,
		`args = ["--api-key", "abc", "--lr", "1"]`:                                                           `args = ["--api-key", "***", "--lr", "1"]`,
		"Authorization: Bearer abcdefghijklmnop":                                                             "Authorization: Bearer ***",
		"https://hooks.slack.com/services/T0/B0/abcdef":                                                      "https://hooks.slack.com/services/***",
		"--aws_secret_key /Jalr+XUtnFEMI0K7MDENG/bPxRfiCYEXAMPLEKEY":                                         "--aws_secret_key ***",
		"sh -c 'export HF_TOKEN=abc; python t.py --db-password x1 --lr 2'":                                   "sh -c 'export HF_TOKEN=***; python t.py --db-password *** --lr 2'",
		`error: {\"token\": \"abc9\"}`:                                                                       `error: {\"token\": \"***\"}`,
		"https://x.blob/y?sv=1&sig=aB%2Bc&z=1":                                                               "https://x.blob/y?sv=1&sig=***&z=1",
	} {
		if got := (*Masker)(nil).Text(text); got != want {
			t.Errorf("%q becomes\n%q, want\n%q", text, got, want)
		}
	}
}

// A configuration file's secrets may have blanks, and several lines.
func TestSecretsInDiffs(t *testing.T) {
	const text = `--- a/conf.yaml
+++ b/conf.yaml
@@ -1,9 +1,9 @@
 wandb:
   api_key: my secret words # of mine
-  batch: 8
+  batch: 4
   private_key: |
     first line
     second

   pad_token: "<pad>"
+"hub_token": "hf_x",
 password = 'pass word'
 secret = """
 inner
 """
 lr = 1e-4
 -----BEGIN RSA PRIVATE KEY-----
 MIIEpAIBAAKCAQEA
 -----END RSA PRIVATE KEY-----
-- token: abcdef1
+--batch-size 4 --api-key q1
`
	const want = `--- a/conf.yaml
+++ b/conf.yaml
@@ -1,9 +1,9 @@
 wandb:
   api_key: *** # of mine
-  batch: 8
+  batch: 4
   private_key: |
     ***
     ***

   pad_token: "<pad>"
+"hub_token": "***",
 password = '***'
 secret = """
 ***
 ***"""
 lr = 1e-4
 -----BEGIN RSA PRIVATE KEY-----***-----END RSA PRIVATE KEY-----
-- token: ***
+--batch-size 4 --api-key ***
`
	if diff := cmp.Diff(want, (*Masker)(nil).Config(text)); diff != "" {
		t.Error(diff)
	}
}

// What a name has shown to be a secret is one everywhere.
func TestLearnedSecretsAreMaskedEverywhere(t *testing.T) {
	m := New([]string{"train.py", "--password", "tr0ub4dor&3", "--token=it's\\mine", "--dsn", "pg://u:hunter2go@h/d"}, map[string]string{"DB_PASSWORD": "postgres", "A_SECRET": "one9\ntwo line8"})
	for text, want := range map[string]string{
		"AuthError: tr0ub4dor&3 is wrong": "AuthError: *** is wrong",
		"'it'\\''s\\mine' it's\\\\mine":   "'***' ***",
		"user postgres, postgresql":       "user ***, postgresql",
		"hunter2go":                       "***",
		"+two line8":                      "+***",
	} {
		if got := m.Text(text); got != want {
			t.Errorf("%q becomes %q, want %q", text, got, want)
		}
	}
}

func TestJSONIsMaskedInPlace(t *testing.T) {
	const text = `{ "argv": ["t.py", "--api-key", "abc", "--password=p w"], "env": {"HF_TOKEN":"x","N":"4"},` + "\n" +
		` "checkpoint": "/runs/token=abc/ckpt", "reason": "bad --api-key abc, \"q\"", "n": 1.50, "none": null, "nested": [[{"deep": ["AKIAIOSFODNN7EXAMPLE"]}], [], {}, true] }`
	const want = `{ "argv": ["t.py", "--api-key", "***", "--password=***"], "env": {"HF_TOKEN":"***","N":"4"},` + "\n" +
		` "checkpoint": "/runs/token=abc/ckpt", "reason": "bad --api-key ***, \"q\"", "n": 1.50, "none": null, "nested": [[{"deep": ["***"]}], [], {}, true] }`
	if diff := cmp.Diff(want, string((*Masker)(nil).JSON([]byte(text)))); diff != "" {
		t.Error(diff)
	}
	if got := string((*Masker)(nil).JSON([]byte("--password x {"))); got != "--password *** {" {
		t.Errorf("%q", got)
	}
}

// A JSON document stays one with the same shape, whatever its strings are.
func TestJSONStaysJSON(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		value := map[string]any{
			rapid.String().Draw(t, "key"): rapid.SliceOf(rapid.String()).Draw(t, "list"), "token": rapid.String().Draw(t, "token"),
			"inner": map[string]any{"x": rapid.Float64Range(-1e9, 1e9).Draw(t, "x"), rapid.String().Draw(t, "k2"): rapid.String().Draw(t, "v2")},
		}
		text, err := json.Marshal(value)
		testenv.Check(t, err)
		got := New([]string{"--password", rapid.String().Draw(t, "secret")}, nil).JSON(text)
		var back map[string]any
		if err := json.Unmarshal(got, &back); err != nil || len(back) != len(value) {
			t.Fatalf("%s becomes %s: %v", text, got, err)
		}
	})
}

// secretName draws the name of a secret, as an option or a variable.
func secretName() *rapid.Generator[string] {
	return rapid.Custom(func(t *rapid.T) string {
		last := rapid.SampledFrom([]string{"token", "key", "secret", "password", "credential"}).Draw(t, "last")
		name := rapid.StringMatching(`([a-z]{2,6}[_.])?(api|auth|hub|access|db|wandb)_`).Draw(t, "before") + last
		return rapid.SampledFrom([]func(string) string{
			func(n string) string { return n }, strings.ToUpper, func(n string) string { return strings.ReplaceAll(n, "_", "-") },
			func(n string) string { // camelCase
				parts := strings.Split(n, "_")
				for i, p := range parts[1:] {
					parts[i+1] = strings.ToUpper(p[:1]) + p[1:]
				}
				return strings.Join(parts, "")
			},
		}).Draw(t, "spelling")(name)
	})
}

// secretValue draws what no word, number or path is.
func secretValue() *rapid.Generator[string] {
	return rapid.StringMatching(`[A-Za-z][0-9][A-Za-z0-9+/=_.,:;!?@#%^&*(){}'"\\ \-]{6,30}[0-9][a-zA-Z]`)
}

// No secret of a command is in anything that is made of it.
func TestNoSecretIsShown(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		argv, env := []string{"train.py"}, map[string]string{}
		var secrets []string
		for i := range rapid.IntRange(1, 4).Draw(t, "secrets") {
			name, value := secretName().Draw(t, "name"), secretValue().Draw(t, "value")
			if trivial(value) {
				continue
			}
			secrets = append(secrets, value)
			switch rapid.IntRange(0, 3).Draw(t, "form") {
			case 0:
				argv = append(argv, "--"+name, value)
			case 1:
				argv = append(argv, "--"+name+"="+value)
			case 2:
				argv = append(argv, "+"+name+"="+value)
			case 3:
				env[fmt.Sprintf("N%d_HF_TOKEN", i)] = value
			}
			argv = append(argv, strings.Fields(rapid.SampledFrom(noSecrets).Draw(t, "other"))...)
		}
		m := New(argv, env)
		line, err := json.Marshal(map[string]any{"command": map[string]any{"argv": argv, "env": env}, "error": "bad value " + strings.Join(secrets, " and ")})
		testenv.Check(t, err)
		var b strings.Builder
		for _, word := range argv {
			b.WriteString(" '" + strings.ReplaceAll(word, "'", `'\''`) + "'")
		}
		var back struct{ Command, Error any }
		testenv.Check(t, json.Unmarshal(m.JSON(line), &back))
		for _, secret := range secrets {
			for form, text := range map[string]string{
				"words": strings.Join(m.Words(argv), "\n"), "env": strings.Join(slices.Collect(mapValues(m.Env(env))), "\n"),
				"text": m.Text("cannot use " + secret + "."), "shell": m.Text(b.String()), "diff": m.Config("-" + b.String() + "\n+" + b.String() + "\n"), "json": toString(back),
			} {
				if strings.Contains(text, secret) || strings.Contains(text, strings.ReplaceAll(secret, "'", `'\''`)) {
					t.Fatalf("%q is in the %s: %q", secret, form, text)
				}
			}
		}
	})
}

func mapValues(m map[string]string) func(func(string) bool) {
	return func(yield func(string) bool) {
		for _, v := range m {
			if !yield(v) {
				return
			}
		}
	}
}

func toString(v any) string {
	var b strings.Builder
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if enc.Encode(v) != nil {
		return ""
	}
	return b.String()
}

// BenchmarkJSON masks the journal's line of an attempt with many findings.
func BenchmarkJSON(b *testing.B) {
	var facts []map[string]any
	for range 500 {
		facts = append(facts, map[string]any{"source": "stderr", "text": "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 1 has a total capacity of 79.15 GiB of which 1.20 GiB is free.",
			"traceback": []string{"Traceback (most recent call last):", "  File \"/x/site-packages/torch/_tensor.py\", line 522, in backward", "    torch.autograd.backward("}})
	}
	line, err := json.Marshal(facts)
	if err != nil {
		b.Fatal(err)
	}
	m := New([]string{"--hub_token", "a1b2c3d4e5f6", "--password", "p4ssw0rd!"}, nil)
	b.SetBytes(int64(len(line)))
	for b.Loop() {
		m.JSON(line)
	}
}

// A secret with commas and an equals sign is no list of settings.
func TestListsAreNotSecrets(t *testing.T) {
	m := New([]string{"train.py", "+dyslbd_db_token=N5,8,i=!OD4B"}, nil)
	if got := m.Text("bad value N5,8,i=!OD4B"); got != "bad value ***" {
		t.Error(got)
	}
}

// What is declared a secret is one, whatever it looks like; what is too short is not looked for.
func TestGivenSecrets(t *testing.T) {
	m := New(nil, nil, "hooks.example/a/b", "a/b", "hooks")
	if got := m.Text("POST https://hooks.example/a/b failed: no a/b at hooks"); got != "POST https://*** failed: no a/b at hooks" {
		t.Error(got)
	}
	if New(nil, nil, "", "short") != nil {
		t.Error("a masker that masks nothing")
	}
}

// A secretText has a secret after a name for which any value is one, and how the text is shown. The tests of the hook read
// the same file.
type secretText struct{ Text, Secret, Want string }

func readCases[T any](t *testing.T, name string) (cases []T) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", name+".json"))
	if err == nil {
		err = json.Unmarshal(text, &cases)
	}
	testenv.Check(t, err)
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

func TestLine(t *testing.T) {
	for text, want := range map[string]string{
		"plain, with a tab\t→ 4 × 2, „naïve“ 日本 👍": "plain, with a tab\t→ 4 × 2, „naïve“ 日本 👍",
		"\x1b]0;title\a\x1b[2J":                    `\x1b]0;title\a\x1b[2J`,
		"two\nlines\r\n":                           `two\nlines\r\n`,
		"\u009b31mC1\u0085":                        `\x9b31mC1\x85`,
		"raw C1 \x9b31m":                           `raw C1 \x9b31m`,
		"exe\u202egpj.pt":                          `exe\u202egpj.pt`,
		"\u2066isolate\u2069 mark\u200f\u061c":     `\u2066isolate\u2069 mark\u200f\u061c`,
		"zero\u200bwidth\u200d\ufeff\u00ad":        `zero\u200bwidth\u200d\ufeff\xad`,
		"line\u2028sep\u2029":                      `line\u2028sep\u2029`,
		"filler\u3164\u115f\u2800\u034f":           `filler\u3164\u115f\u2800\u034f`,
		"tags\U000e0041\U000e0100":                 `tags\U000e0041\U000e0100`,
		"\x00\x7f\b":                               `\x00\x7f\b`,
		"C:\\new":                                  `C:\new`,
	} {
		if got := TerminalLine(text); got != want {
			t.Errorf("%q becomes %q, want %q", text, got, want)
		}
	}
	if got, want := TerminalLines("--- a\n+b\x1b\r\n"), "--- a\n+b\\x1b\\r\n"; got != want {
		t.Errorf("lines become %q, want %q", got, want)
	}
}

// Whatever is shown, a terminal obeys nothing in it, and a second pass changes nothing.
func TestControlCharactersHaveNoEffect(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := string(rapid.SliceOf(rapid.Byte()).Draw(t, "bytes")) + rapid.String().Draw(t, "text")
		got := TerminalLine(text)
		if !utf8.ValidString(got) || strings.ContainsFunc(got, func(r rune) bool { return r != '\t' && !unicode.IsGraphic(r) }) {
			t.Fatalf("%q becomes %q", text, got)
		}
		if again := TerminalLine(got); again != got {
			t.Fatalf("%q becomes %q the second time", got, again)
		}
	})
}

type name string

type pair struct{ A, B string }

func TestSprintfEscapesArguments(t *testing.T) {
	got := TerminalSprintf("%s\n%v %d %v %s %v %v %v%%\n", "a\nb", name("\x1b"), 3, errors.New("e\r"), 2*time.Second, pair{"x\n", "y"}, []string{"\a"}, nil)
	if want := "a\\nb\n\\x1b 3 e\\r 2s {x\\n y} [\\a] <nil>%\n"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}
