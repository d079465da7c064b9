package diagnose

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/gpurun/gpurun/strategy/cause"
	"github.com/gpurun/gpurun/test/testenv"
)

// trainingLog is a training that ran out of memory in backward, after a few steps.
const trainingLog = "loading the model\n" +
	"step 1 loss 2.50\nstep 2 loss 2.40\nstep 3 loss 2.30\n" +
	"Traceback (most recent call last):\n" +
	"  File \"/app/train.py\", line 91, in <module>\n" +
	"    main()\n" +
	"  File \"/app/train.py\", line 77, in main\n" +
	"    loss.backward()\n" +
	"  File \"/usr/lib/python3/site-packages/torch/_tensor.py\", line 581, in backward\n" +
	"    torch.autograd.backward(\n" +
	"torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 1 has a total capacity of 79.15 GiB of which 1.20 GiB is free.\n"

// eachLine formats the lines of a text.
func eachLine(text string, format func(i int, line string) string) string {
	var b strings.Builder
	for i, line := range strings.Split(strings.TrimSuffix(text, "\n"), "\n") {
		b.WriteString(format(i, line) + "\n")
	}
	return b.String()
}

func quoted(t *testing.T, text string) string {
	t.Helper()
	b, err := json.Marshal(text)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// collected returns the log in the formats of collectors and systems.
func collected(t *testing.T) map[string]string {
	windows := strings.ReplaceAll(trainingLog, "\n", "\r\n")
	at := func(i int) string { return time.Unix(1772445600+int64(i), 530e6).UTC().Format(time.RFC3339Nano) }
	return map[string]string{
		"plain":     trainingLog,
		"windows":   windows,
		"utf8 mark": "\ufeff" + trainingLog,
		"docker": eachLine(trainingLog, func(i int, line string) string {
			return fmt.Sprintf(`{"log":%s,"stream":"stderr","time":"%s"}`, quoted(t, line+"\n"), at(i))
		}),
		"docker attrs": eachLine(trainingLog, func(i int, line string) string {
			return fmt.Sprintf(`{"log":%s,"stream":"stdout","attrs":{"tag":"x"},"time":"%s"}`, quoted(t, line+"\r\n"), at(i))
		}),
		"fluent-bit": eachLine(trainingLog, func(i int, line string) string {
			return fmt.Sprintf(`{"stream":"stderr","logtag":"F","log":%s,"kubernetes":{"pod_name":"trainer-0","container_name":"pytorch"}}`, quoted(t, line))
		}),
		"cloud logging": eachLine(trainingLog, func(i int, line string) string {
			return fmt.Sprintf(`{"insertId":"x%d","resource":{"labels":{"pod_name":"trainer-0"},"type":"k8s_container"},"textPayload":%s,"timestamp":"%s"}`, i, quoted(t, line), at(i))
		}),
		"json logger": eachLine(trainingLog[:strings.Index(trainingLog, "Traceback")], func(i int, line string) string {
			return fmt.Sprintf(`{"asctime":"%s","levelname":"INFO","message":%s}`, at(i), quoted(t, line))
		}) + fmt.Sprintf(`{"levelname":"ERROR","message":"training failed","exc_info":%s}`, quoted(t, trainingLog[strings.Index(trainingLog, "Traceback"):])) + "\n",
		"cri":           eachLine(trainingLog, func(i int, line string) string { return at(i) + " stderr F " + line }),
		"kubectl":       eachLine(trainingLog, func(i int, line string) string { return "[pod/trainer-0/pytorch] " + line }),
		"kubectl times": eachLine(trainingLog, func(i int, line string) string { return "[pod/trainer-0/pytorch] " + at(i) + " " + line }),
		"docker logs":   eachLine(trainingLog, func(i int, line string) string { return at(i) + " " + line }),
		"compose":       "Attaching to trainer-1\n" + eachLine(trainingLog, func(i int, line string) string { return "\x1b[36mtrainer-1  | \x1b[0m" + line }),
		"journal short": "-- Journal begins at Mon 2026-03-02. --\n" + eachLine(trainingLog, func(i int, line string) string {
			return fmt.Sprintf("Mar  2 10:00:%02d gpu-07 python3[4711]: %s", i, line)
		}),
		"journal iso": eachLine(trainingLog, func(i int, line string) string {
			return fmt.Sprintf("2026-03-02T10:00:%02d+0100 gpu-07 python3[4711]: %s", i, line)
		}),
		"journal precise": eachLine(trainingLog, func(i int, line string) string {
			return fmt.Sprintf("Mar 02 10:00:%02d.123456 gpu-07 python3[4711]: %s", i, line)
		}),
		"journal full": eachLine(trainingLog, func(i int, line string) string {
			return fmt.Sprintf("Mon 2026-03-02 10:00:%02d UTC gpu-07 python3[4711]: %s", i, line)
		}),
		"journal unix": eachLine(trainingLog, func(i int, line string) string {
			return fmt.Sprintf("17724456%02d.123456 gpu-07 python3[4711]: %s", i, line)
		}),
		"journal json": eachLine(trainingLog, func(i int, line string) string {
			message := quoted(t, line)
			if i%2 == 1 { // the list of bytes that stands for text with control characters
				message = strings.ReplaceAll(fmt.Sprint([]byte("\x1b[31m"+line+"\x1b[0m")), " ", ",")
			}
			return fmt.Sprintf(`{"__REALTIME_TIMESTAMP":"17724456000000%02d","_PID":"4711","SYSLOG_IDENTIFIER":"python3","PRIORITY":"6","MESSAGE":%s}`, i, message)
		}),
		"colours": eachLine(trainingLog, func(i int, line string) string { return "\x1b[1;31m" + line + "\x1b[0m" }),
		"bars":    strings.Repeat("\r 37%|███▋      | 370/1000 [02:10<03:41, 2.84it/s, loss=2.31]", 2000) + "\n" + trainingLog,
	}
}

// Each format that a system or a collector of logs makes of the same output has the same
// diagnosis, with the same figures and the text of the job's own line.
func TestFormatsOfCollectors(t *testing.T) {
	logs := collected(t)
	dir := tree(t, logs)
	for name, text := range logs {
		_, d := said(t, filepath.Join(dir, name))
		if d.Cause != cause.CUDAOOM || d.Phase != cause.Backward || !d.Fatal || d.Requested == nil || *d.Requested != 2<<30 || d.Free == nil {
			t.Errorf("%s: %s in %s, figures %+v", name, d.Cause, d.Phase, d.Figures)
			continue
		}
		q := d.Evidence[0]
		if !strings.HasPrefix(q.Text, "torch.OutOfMemoryError: CUDA") {
			t.Errorf("%s: evidence %q", name, q.Text)
		}
		if name == "json logger" {
			continue
		}
		if lines := strings.Split(text, "\n"); !strings.Contains(name, "journal json") && (q.Line < 1 || q.Line > len(lines) || !strings.Contains(lines[q.Line-1], "OutOfMemoryError")) {
			t.Errorf("%s: line %d is not the error's", name, q.Line)
		}
	}
}

// Containers and processes that share a collector's file have separate tracebacks, and the
// evidence names them. The time of an entry is that of its finding.
func TestSharedCollectorFile(t *testing.T) {
	other := strings.ReplaceAll(strings.ReplaceAll(trainingLog, "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB", "KeyError: 'tokens'"), "train.py", "other.py")
	a, b := strings.Split(strings.TrimSpace(trainingLog), "\n"), strings.Split(strings.TrimSpace(other), "\n")
	formats := map[string]func(i int, pod, line string) string{
		"kubectl": func(i int, pod, line string) string { return "[pod/" + pod + "/pytorch] " + line },
		"compose": func(i int, pod, line string) string { return pod + "  | " + line },
		"journal": func(i int, pod, line string) string {
			return fmt.Sprintf("2026-03-02T10:00:%02d+0000 gpu-07 %s[%s]: %s", i, "python", pod[len(pod)-1:], line)
		},
		"json": func(i int, pod, line string) string {
			return fmt.Sprintf(`{"time":"2026-03-02T10:00:%02dZ","log":%s,"kubernetes":{"pod_name":"%s"}}`, i, quoted(t, line), pod)
		},
	}
	for name, format := range formats {
		var text strings.Builder
		for i := range a {
			text.WriteString(format(i, "trainer-1", a[i]) + "\n")
			text.WriteString(format(i, "trainer-2", b[i]) + "\n")
		}
		in, err := Collector{Stdin: strings.NewReader(text.String()), Attempt: -1}.Collect("-")
		if err != nil {
			t.Fatal(err)
		}
		d := Diagnose(in)
		if d.Cause != cause.CUDAOOM || d.Phase != cause.Backward || d.Evidence[0].Line != 2*len(a)-1 {
			t.Errorf("%s: %s in %s at line %d", name, d.Cause, d.Phase, d.Evidence[0].Line)
		}
		if who := d.Evidence[0].where; !strings.Contains(who, "1") || strings.Contains(who, "2") {
			t.Errorf("%s: the evidence is of %q", name, who)
		}
		if at := in.Evidence.Facts[0].Time; (name == "journal" || name == "json") && at.Format(time.RFC3339) != "2026-03-02T10:00:11Z" {
			t.Errorf("%s: found at %v", name, at)
		}
	}
}

// A line that docker or containerd cut into parts is read as one, and counts as they are.
func TestCutCollectorLines(t *testing.T) {
	const head, tail = "torch.OutOfMemoryError: CUDA out of mem", "ory. Tried to allocate 2.00 GiB."
	for name, text := range map[string]string{
		"docker": `{"log":"step 1\n","stream":"stdout","time":"2026-03-02T10:00:00Z"}` + "\n" +
			`{"log":"` + head + `","stream":"stderr","time":"2026-03-02T10:00:00Z"}` + "\n" +
			`{"log":"step 2\n","stream":"stdout","time":"2026-03-02T10:00:00Z"}` + "\n" +
			`{"log":"` + tail + `\n","stream":"stderr","time":"2026-03-02T10:00:00Z"}` + "\n",
		"cri": "2026-03-02T10:00:00.1Z stdout F step 1\n2026-03-02T10:00:00.1Z stderr P " + head + "\n2026-03-02T10:00:00.1Z stdout F step 2\n2026-03-02T10:00:00.1Z stderr F " + tail + "\n",
		"end": "2026-03-02T10:00:00.1Z stdout F step 1\n2026-03-02T10:00:00.1Z stdout F step 2\n2026-03-02T10:00:00.1Z stdout F step 3\n2026-03-02T10:00:00.1Z stderr P " + head + tail,
	} {
		in, err := Collector{Stdin: strings.NewReader(text), Attempt: -1}.Collect("-")
		if err != nil {
			t.Fatal(err)
		}
		if d := Diagnose(in); d.Cause != cause.CUDAOOM || d.Requested == nil || name != "end" && d.Evidence[0].Line != 4 {
			t.Errorf("%s: %s, %+v", name, d.Cause, d.Evidence)
		}
	}
}

// Ordinary output is not taken for a collector's: it is passed on unchanged.
func TestOrdinaryOutputHasNoCollector(t *testing.T) {
	for _, text := range []string{
		trainingLog,
		"INFO | starting\nINFO | step 1\nERROR | failed\n",
		"iteration 10/ 500 | loss 2.1\niteration 11/ 500 | loss 2.0\n",
		"2026-03-02 10:00:00,123 - INFO - epoch 3\n2026-03-02 10:00:01,123 - INFO - epoch 4\n",
		`{"loss": 2.1, "step": 10}` + "\n" + `{"loss": 2.0, "step": 11}` + "\n",
		`{"message": {"message": "KeyError: 'x'", "extraInfo": {"timestamp": "1"}}}`,
		"host1: step 1\nhost2: step 1\n",
		"",
	} {
		if w := wrappingOf([]byte(text)); w != nil {
			t.Errorf("%q is taken for %s", text, w.name)
		}
	}
}

// The reports do not depend on how a file is cut into reads.
func TestReadsOfAnySize(t *testing.T) {
	random := rand.New(rand.NewPCG(testenv.Of(t), 1))
	for name, text := range collected(t) {
		for _, in := range []io.Reader{iotest.OneByteReader(strings.NewReader(text)), iotest.HalfReader(strings.NewReader(text)), &randomReader{strings.NewReader(text), random}} {
			a, err := Collector{Stdin: in, Attempt: -1}.Collect("-")
			if err != nil {
				t.Fatal(err)
			}
			if d := Diagnose(a); d.Cause != cause.CUDAOOM || d.Requested == nil {
				t.Errorf("%s: %s", name, d.Cause)
			}
		}
	}
}

// A randomReader returns up to 100 bytes.
type randomReader struct {
	in     io.Reader
	random *rand.Rand
}

func (r *randomReader) Read(p []byte) (int, error) {
	return r.in.Read(p[:min(len(p), 1+r.random.IntN(100))])
}

// Any bytes in a collector's format are read to their end.
func FuzzCollectors(f *testing.F) {
	f.Add([]byte(`{"log":"a`), []byte(`","stream":"stdout"}`))
	f.Add([]byte("2026-03-02T10:00:00.1Z"), []byte(" stderr P "))
	f.Add([]byte("Mar  2 10:00:00 a b[1]: "), []byte("\xff\xfe"))
	f.Add([]byte("[pod/"), []byte("] "))
	f.Fuzz(func(t *testing.T, head, tail []byte) {
		text := bytes.Repeat(append(append(bytes.Clone(head), tail...), '\n'), 3)
		a, err := Collector{Stdin: bytes.NewReader(text), Attempt: -1}.Collect("-")
		if err == nil {
			Diagnose(a)
		}
	})
}
