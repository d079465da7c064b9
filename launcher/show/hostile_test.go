package show

import (
	"bytes"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gpurun/gpurun/launcher"
	"github.com/gpurun/gpurun/launcher/journal"
	"github.com/gpurun/gpurun/strategy"
	"github.com/gpurun/gpurun/strategy/cause"
	"github.com/gpurun/gpurun/strategy/memory"
)

// evil is text that a browser, a terminal or a reader could be led astray by.
const evil = `</style></title></pre><script>alert(1)</script><img src=http://evil.example/x onerror=alert(2)>"'` + "`{{.}}\x1b[31m\x1b]0;t\x07\u202e\u200b\x00\xff &amp; javascript:alert(3)"

// secret has the shape of a token.
const secret = "hf_aBcDeFgHiJkLmNoPqRsTuVwXyZ01234567"

// hostileReport is a run in which a job, or the writer of the journal, put such text everywhere.
func hostileReport(t *testing.T, text string, attempts int) string {
	t.Helper()
	n, bytes := text, int64(9<<30)
	times := min(40, 15_000/(len(text)+1)) // a journal has a bound, too
	plan := strategy.Plan{strategy.Optimizer: strategy.Value(n), strategy.MicroBatchSize: "8"}
	next := strategy.Plan{strategy.Optimizer: strategy.Value(n + "2"), strategy.MicroBatchSize: "4"}
	finding := &cause.Finding{Code: cause.CUDAOOM, Text: n, Raised: true, Traceback: slices.Repeat([]string{n}, min(times, 40)), Line: 7}
	loss := 2.5
	facts := []strategy.Fact{
		{Time: day.Add(30 * time.Second), Rank: 0, Source: n, Content: (*strategy.Finding)(finding)},
		{Rank: 0, Source: "exit", Content: &strategy.Exit{Code: 1}},
		{Rank: 0, Source: "probe", Content: &strategy.Progress{Steps: 3, Last: 3, Loss: &loss}},
		{Rank: 0, Source: "probe", Content: &strategy.Measurement{Failed: "forward", Allocated: bytes, Model: &memory.TrainedModel{Class: n, Parameters: 1 << 28, Bytes: map[string]int64{"float32": 1 << 30}}}},
		{Rank: 0, Source: "probe", Content: &strategy.Snapshot{File: "../" + n, Missing: n, Allocated: bytes, Reserved: bytes, Giant: &strategy.Allocation{Bytes: bytes, What: n, Advice: n},
			Top: slices.Repeat([]strategy.Allocation{{Bytes: bytes, Count: 3, File: n, Line: 3, Function: n, What: n, Shape: []int{8, 1024}, Dtype: n, Advice: n}}, times), Leaks: []strategy.Allocation{{Bytes: 5, File: n, PerStep: 9}}}},
	}
	outvoted := slices.Repeat([]strategy.Outvoted{{Plan: next, Reason: n, Expected: memory.Prediction{Mean: 5, Bound: 6}}}, times)
	events := []launcher.Event{launcher.Began{Run: n, Name: n, Version: n, Recipe: n, Python: n, Place: n, Scheduler: n, At: day, Plan: plan, Job: strategy.Job{Ranks: 1 << 30, Written: plan}, Policy: strategy.Policy{Mode: strategy.Mode(n), Never: []string{n}}}}
	summaries := []launcher.AttemptSummary{}
	for k := range attempts {
		events = append(events, launcher.Noticed{Text: n},
			launcher.Started{N: k, Plan: plan, Checkpoint: n, At: day, Command: strategy.Command{Argv: []string{n, "--hub-token", secret}}, Expected: &memory.Prediction{Mean: 3, Bound: 4}},
			launcher.Ended{Evidence: strategy.Evidence{Attempt: k, Plan: plan, Started: day, Ended: day.Add(time.Minute), Ranks: 1, Facts: facts}},
			launcher.Decided{Diagnosis: strategy.Diagnosis{Cause: cause.UserError, Fatal: true, Rank: 0, Device: n, Error: n, Because: []int{0, 1, -4, 99}, Advice: n},
				Decision: strategy.Decision{Relaunch: k < attempts-1, Rule: n, Reason: n, Caveat: n, Unpredicted: n, Next: next, Outcome: strategy.Failed, Outvoted: outvoted, Remedies: []strategy.Remedy{strategy.Remedy(n)},
					Changed: plan.Changed(next), Skipped: slices.Repeat([]strategy.Skip{{Remedy: strategy.Remedy(n), Reason: n}}, times), Ineffective: plan.Changed(next)}})
		summaries = append(summaries, launcher.AttemptSummary{N: k, Price: &strategy.Price{Remedies: []strategy.Remedy{strategy.Remedy(n)}, Changed: plan.Changed(next), BytesBefore: 9, BytesAfter: 5, SecondsAfter: 1}})
	}
	events = append(events, launcher.Finished{Verdict: launcher.Verdict{Outcome: strategy.Failed, Reason: n, Run: n, Attempts: summaries,
		Next: slices.Repeat([]strategy.Advice{{Kind: strategy.NextKind(n), Reason: n, Command: n + " --hub-token " + secret, Diff: "-" + n + "\n+token: " + secret + "\n"}}, 1+attempts%2)}})
	dir := journaled(t, events...)
	for k := range attempts {
		folder := filepath.Join(dir, fmt.Sprintf("attempt-%d", k))
		err := errors.Join(os.MkdirAll(folder, 0o700), os.WriteFile(filepath.Join(folder, "diff.patch"), joinedBytes(strings.Repeat("+"+n+"\n", times), "+token: "+secret+"\n"), 0o600),
			os.WriteFile(filepath.Join(folder, strategy.SamplesFile), hostileSamples(n), 0o600))
		if err != nil {
			t.Fatal(err)
		}
	}
	hints := `["to start with this plan next time, type: ` + secret + `"]`
	if err := os.WriteFile(filepath.Join(dir, journal.HintsFile), []byte(hints), 0o600); err != nil {
		t.Fatal(err)
	}
	return dir
}

func joinedBytes(texts ...string) []byte { return []byte(strings.Join(texts, "")) }

// hostileSamples are lines that are none, of other days, of a thousand devices, and figures
// that cannot be.
func hostileSamples(text string) []byte {
	var b bytes.Buffer
	b.WriteString("\x00\x00no json\n{\"time\":\"x\"}\n[]\n")
	b.WriteString(strings.Repeat("x", 300<<10) + "\n")
	at := day.Add(10 * time.Second).Format(time.RFC3339Nano)
	for i := range 200 {
		fmt.Fprintf(&b, `{"time":%q,"rank":%d,"device":%q,"phase":%q,"step":%d,"loss":1e308,"allocated_bytes":%d,"allowed_bytes":-5,"reserved_bytes":9223372036854775807}`+"\n", at, i%40, fmt.Sprint("d", i%7, text[:min(len(text), 9)]), text[:min(len(text), 300)], i+1, 1<<30+i)
		fmt.Fprintf(&b, `{"time":"9999-01-01T00:00:00Z","rank":-3,"loss":-1e308,"step":%d}`+"\n", i)
	}
	b.WriteString(`{"time":"torn`)
	return b.Bytes()
}

// known are the elements and the attributes that a report is made of.
var (
	knownElements   = strings.Fields("html head meta title style body main header footer section h1 h2 h3 p span b i a br dl dt dd ol ul li code pre table thead tbody tr th td div details summary svg rect path text")
	knownAttributes = strings.Fields("lang charset http-equiv content name class id href scope open width height x y d viewBox preserveAspectRatio role aria-label aria-hidden")
)

// faults are what a page has that it should not: elements, attributes and addresses.
func faults(page string) (found []string) {
	d := xml.NewDecoder(strings.NewReader(page))
	d.Strict, d.AutoClose, d.Entity = false, xml.HTMLAutoClose, xml.HTMLEntity
	for {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			return found
		}
		if err != nil {
			return append(found, err.Error())
		}
		start, ok := token.(xml.StartElement)
		if !ok {
			continue
		}
		if !slices.Contains(knownElements, start.Name.Local) {
			found = append(found, "element "+start.Name.Local)
		}
		for _, a := range start.Attr {
			name := a.Name.Local
			if !slices.Contains(knownAttributes, name) && !strings.HasPrefix(name, "data-") {
				found = append(found, "attribute "+name+" of "+start.Name.Local)
			}
			if name == "href" && strings.ContainsAny(a.Value, ":\\") || strings.HasPrefix(a.Value, "//") {
				found = append(found, "address "+a.Value)
			}
		}
	}
}

// Whatever is in a run directory, the page is a page, and makes no request.
func TestHostileText(t *testing.T) {
	for name, test := range map[string]struct {
		text     string
		attempts int
	}{"markup and controls": {evil, 14}, "long": {strings.Repeat("<&\"\x1b", 1000), 2}} {
		page := pageOf(t, hostileReport(t, test.text, test.attempts))
		for _, fault := range faults(page) {
			t.Errorf("%s: %s", name, fault)
		}
		for _, bad := range []string{"<script", "<img", "\x1b", "\x00", "\x07", "\u202e", "\u200b", "url(", "@import", "ZgotmplZ", "NaN", "%!"} {
			if strings.Contains(strings.ToLower(page), strings.ToLower(bad)) {
				t.Errorf("%s: %q is in the page", name, bad)
			}
		}
		if strings.Contains(page, secret[3:]) {
			t.Errorf("%s: a secret is in the page", name)
		}
		if !strings.Contains(page, "default-src &#39;none&#39;") {
			t.Errorf("%s: no policy", name)
		}
	}
	if len(faults(`<p onclick="x">`)) != 2 || len(faults(`<script src="http://x"></script>`)) == 0 || len(faults(`<a href="javascript:1">x</a>`)) != 1 {
		t.Error("the check finds nothing") // an attribute, and an end that is missing
	}
}

// A link in the place of a file of the run directory is not followed, and a pipe not waited for.
func TestLinksAreNotFollowed(t *testing.T) {
	dir := copied(t, "lightning")
	outside := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(outside, []byte("+outside\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.Remove(filepath.Join(dir, "attempt-1", "diff.patch")), os.Symlink(outside, filepath.Join(dir, "attempt-1", "diff.patch")), os.Symlink(outside, filepath.Join(dir, ReportFile))); err != nil {
		t.Fatal(err)
	}
	if page := pageOf(t, dir); strings.Contains(page, "outside") || strings.Contains(page, `href="attempt-1/diff.patch"`) {
		t.Error("a link was followed")
	}
	if text, _ := os.ReadFile(outside); string(text) != "+outside\n" {
		t.Errorf("%q was written through a link", text)
	}
}

// A report has a bound, however many attempts and samples there are.
func TestSizeOfALongRun(t *testing.T) {
	plan := strategy.Plan{strategy.MicroBatchSize: "8"}
	events := []launcher.Event{launcher.Began{Run: "r", Name: "long", Version: "v1", At: day, Plan: plan, Job: strategy.Job{Ranks: 8}}}
	evidence := func(k int) strategy.Evidence {
		return strategy.Evidence{Attempt: k, Plan: plan, Started: day, Ended: day.Add(3 * time.Hour), Ranks: 8, Facts: []strategy.Fact{
			{Time: day.Add(time.Hour), Rank: 3, Source: "stderr", Content: &strategy.Finding{Code: cause.CUDAOOM, Weight: cause.WeightCause, Raised: true, Text: "torch.OutOfMemoryError: CUDA out of memory.", Rank: 3, Phase: cause.Backward}}}}
	}
	for k := range 40 {
		events = append(events, launcher.Started{N: k, Plan: plan, At: day}, launcher.Ended{Evidence: evidence(k)},
			launcher.Decided{Diagnosis: strategy.Diagnosis{Cause: cause.CUDAOOM, Fatal: true, Rank: 3, Because: []int{0}}, Decision: strategy.Decision{Relaunch: true, Reason: "again"}})
	}
	dir := journaled(t, events...)
	const different = 10_000
	samples := 2 * different
	if os.Getenv("GPURUN_LAB") != "" {
		samples = 100_000
	}
	d := ranFrom(launcher.Started{}, evidence(0))
	sampled(t, dir, d, course{ranks: 8, steps: different / 8, held: 20 << 30, peak: 70 << 30, allowed: 80 << 30, loss: 4})
	path := filepath.Join(dir, "attempt-0", strategy.SamplesFile)
	if text, err := os.ReadFile(path); err != nil || os.WriteFile(path, bytes.Repeat(text, samples/different), 0o600) != nil {
		t.Fatal(err)
	}
	for k := 1; k < 40; k++ {
		folder := filepath.Join(dir, fmt.Sprintf("attempt-%d", k))
		if err := errors.Join(os.Mkdir(folder, 0o700), os.Link(path, filepath.Join(folder, strategy.SamplesFile))); err != nil {
			t.Fatal(err)
		}
	}
	page := pageOf(t, dir)
	if got := len(elements(page, "data-milliseconds")); got != 40 {
		t.Errorf("the timeline has %d attempts", got)
	}
	if got := len(elements(page, "data-loss")); got != mostLosses {
		t.Errorf("%d losses", got)
	}
	if !strings.Contains(page, "28 attempts in between are not shown in full") {
		t.Error("what is left out is not said")
	}
	t.Logf("%d bytes", len(page))
}

// Of a large file the end is read, where the loss and the step of the attempt are.
func TestLastSamplesOfALargeFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), strategy.SamplesFile)
	var text bytes.Buffer
	for i := range 50_000 {
		fmt.Fprintf(&text, `{"time":%q,"rank":%d,"step":%d}`+"\n", day.Format(time.RFC3339), i%8, i)
	}
	if err := os.WriteFile(path, append(text.Bytes(), `{"time":"torn`...), 0o600); err != nil {
		t.Fatal(err)
	}
	samples := readSamples(path, day, day)
	if n := len(samples); n < 1000 || n > 10_000 || samples[n-1].Step != 49_999 || samples[0].Step != 50_000-n {
		t.Errorf("%d samples", n)
	}
	if samples := readSamples(path, day.Add(time.Hour), day.Add(2*time.Hour)); samples != nil {
		t.Errorf("%d samples of another attempt", len(samples))
	}
}
