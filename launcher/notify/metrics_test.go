package notify

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	"github.com/prometheus/common/expfmt"
	prometheus "github.com/prometheus/common/model"

	"github.com/gpurun/gpurun/launcher"
	"github.com/gpurun/gpurun/launcher/mask"
	"github.com/gpurun/gpurun/strategy"
	"github.com/gpurun/gpurun/strategy/cause"
	"github.com/gpurun/gpurun/strategy/memory"
)

const gib = 1 << 30

var (
	at           = time.Unix(1_800_000_000, 0)
	metricsBegan = launcher.Began{
		Run: "20270115-080000-ab12", Name: "gpt", Version: "v1.2.3", Recipe: "trl", At: at,
		Policy: strategy.Policy{MaxAttempts: 20}, Job: strategy.Job{Ranks: 2, DataParallel: 2, Ceiling: 20 * gib},
	}
	plan          = strategy.Plan{strategy.MicroBatchSize: "8", strategy.GradientAccumulationSteps: "2"}
	metricsEvents = []launcher.Event{
		metricsBegan,
		launcher.Started{N: 0, Plan: plan, At: at.Add(time.Second)},
		launcher.InPlace{InPlace: strategy.InPlace{Phase: "forward", Step: 3, LastStep: 4, Times: 2, Seconds: strategy.Seconds(1500 * time.Millisecond)}},
		launcher.Ended{Evidence: strategy.Evidence{Facts: []strategy.Fact{{Content: &strategy.ProcessReport{Model: &strategy.Model{Class: "GPT2LMHeadModel", Parameters: 124_439_808}}}}}},
		launcher.Decided{GPUTime: &strategy.GPUTime{Total: 60, Lost: 20, Rescues: 1}, Diagnosis: strategy.Diagnosis{Cause: cause.CUDAOOM}, Decision: strategy.Decision{Relaunch: true, Remedy: strategy.RemedyMicroBatch, Remedies: []strategy.Remedy{strategy.RemedyAllocator, strategy.RemedyMicroBatch}}},
		launcher.Started{N: 1, Plan: plan, At: at.Add(time.Minute), Expected: &memory.Prediction{Mean: 10 * gib, Bound: 12 * gib}},
	}
)

// sampled are two ranks of which the second lags behind.
func sampled() []strategy.Sample {
	return []strategy.Sample{
		{Rank: 0, Device: "cuda:0", Step: 40, Total: 100, Allocated: 8 * gib, Reserved: 9 * gib, Peak: 10 * gib, Retries: 3, Allowed: 24 * gib, Used: 11 * gib, Capacity: 24 * gib},
		{Rank: 1, Device: "cuda:1", Step: 30, Total: 100, Allocated: 7 * gib, Reserved: 9 * gib, Peak: 11 * gib, Retries: 1, Allowed: 16 * gib, Used: 11 * gib, Capacity: 24 * gib},
	}
}

func made(t *testing.T, o strategy.Metrics, m *mask.Masker) *Exporter {
	t.Helper()
	made := NewExporter(o, m)
	made.user = func() string { return "ada" }
	return made
}

// tell gives metrics events and samples as a run would.
func tell(m *Exporter, samples []strategy.Sample, events ...launcher.Event) {
	show, take := m.Events(func(launcher.Event) {}), m.Samples(func(int, []strategy.Sample) {})
	for _, e := range events {
		show(e)
	}
	if samples != nil {
		take(1, samples)
	}
}

// exposed returns the text for a scraper. Prometheus' own parser reads it, and its own writer
// writes the same; promlint finds nothing.
func exposed(t *testing.T, m *Exporter) string {
	t.Helper()
	text := string(m.text())
	parser := expfmt.NewTextParser(prometheus.UTF8Validation)
	parsed, err := parser.TextToMetricFamilies(strings.NewReader(text))
	if err != nil {
		t.Fatalf("%v in\n%s", err, text)
	}
	var again bytes.Buffer
	for _, name := range slices.Sorted(maps.Keys(parsed)) {
		seen := map[string]bool{}
		for _, metric := range parsed[name].Metric {
			if labels := fmt.Sprint(metric.Label); seen[labels] {
				t.Errorf("%s has two values for %s", name, labels)
			} else {
				seen[labels] = true
			}
		}
		if _, err := expfmt.MetricFamilyToText(&again, parsed[name]); err != nil {
			t.Fatal(err)
		}
	}
	if again.String() != text {
		t.Errorf("Prometheus would write\n%s\ngpurun writes\n%s", again.String(), text)
	}
	if problems, err := promlint.New(strings.NewReader(text)).Lint(); err != nil || len(problems) > 0 {
		t.Errorf("promlint: %v %v", problems, err)
	}
	return text
}

const both = `{job_name="gpt",run="20270115-080000-ab12"}`

// values are lines of an exposition without help, types, and the labels that all have.
func values(text string) string {
	var lines []string
	for line := range strings.Lines(text) {
		if !strings.HasPrefix(line, "#") {
			line = strings.ReplaceAll(line, both, "")
			lines = append(lines, strings.NewReplacer(`,job_name="gpt"`, "", `job_name="gpt",`, "", `,run="20270115-080000-ab12"`, "", `run="20270115-080000-ab12",`, "").Replace(line))
		}
	}
	return strings.Join(lines, "")
}

// A run that was rescued once exports all of it, and promlint finds nothing; at its end,
// what is over is exported no more.
func TestMetricsOfARun(t *testing.T) {
	m := made(t, strategy.Metrics{}, nil)
	if text := exposed(t, m); text != "" {
		t.Errorf("before the run:\n%s", text)
	}
	tell(m, sampled(), metricsEvents...)
	m.state.Progress.Stepped, m.state.Progress.Rate = at.Add(2*time.Minute), 0.5
	running := exposed(t, m)
	if got := values(running); got != readTest(t, "running.txt") {
		t.Errorf("while it runs:\n%s", got)
	}
	tell(m, nil, launcher.Ended{}, launcher.Decided{Diagnosis: strategy.Diagnosis{Cause: cause.None}, GPUTime: &strategy.GPUTime{Total: 7200, Lost: 20.5, Rescued: 7140, Rescues: 1}}, launcher.Finished{Verdict: launcher.Verdict{Outcome: strategy.Exhausted, Code: 12}})
	m.ended = at.Add(time.Hour)
	over := exposed(t, m)
	if got := values(over); got != readTest(t, "over.txt") {
		t.Errorf("at the end:\n%s", got)
	}
	for _, f := range families {
		if !strings.Contains(running+over, "# HELP "+f.name+" ") {
			t.Errorf("%s is never exported", f.name)
		}
	}
	promtool(t, running, "check", "metrics")
	promtool(t, over, "check", "metrics")
}

// A rank whose lines count micro batches, beside one whose process counts steps, does not make
// the other one lag behind.
func TestRanksThatCountDifferently(t *testing.T) {
	m, samples := made(t, strategy.Metrics{}, nil), sampled()
	samples[0].Batches, samples[1].Total = true, 0
	tell(m, samples, metricsEvents...)
	m.state.Progress.Rate = 0.5
	if text := values(exposed(t, m)); !strings.Contains(text, `gpurun_training_step{rank="0"} 40`) || strings.Contains(text, `gpurun_training_step{rank="1"}`) || strings.Contains(text, "gpurun_samples_per_second") {
		t.Errorf("steps of\n%s", text)
	}
}

func readTest(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", "metrics", name))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// promtool runs Prometheus' own tool, where it is installed.
func promtool(t *testing.T, stdin string, args ...string) {
	t.Helper()
	tool, err := exec.LookPath("promtool")
	if err != nil {
		t.Log("no promtool here: install prometheus to hear what it says")
		return
	}
	cmd := exec.Command(tool, args...)
	cmd.Stdin = strings.NewReader(stdin)
	if out, err := cmd.CombinedOutput(); err != nil || strings.Contains(string(out), "gpurun_") {
		t.Errorf("promtool %q: %v\n%s", args, err, out)
	}
}

// The rules that come with gpurun hold what their tests say, and use metrics that exist.
func TestRules(t *testing.T) {
	dir := filepath.Join("..", "..", "examples", "prometheus")
	text, err := os.ReadFile(filepath.Join(dir, "gpurun.rules.yml"))
	if err != nil {
		t.Fatal(err)
	}
	for _, used := range regexp.MustCompile(`gpurun_\w+`).FindAllString(string(text), -1) {
		if !slices.ContainsFunc(families, func(f *family) bool { return f.name == used }) {
			t.Errorf("the rules use %s, which is none of the metrics", used)
		}
	}
	promtool(t, "", "check", "rules", filepath.Join(dir, "gpurun.rules.yml"))
	promtool(t, "", "test", "rules", filepath.Join(dir, "gpurun.test.yml"))
}

// The dashboard's queries use metrics that exist, and Prometheus can read them.
func TestDashboard(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("..", "..", "examples", "prometheus", "gpurun.dashboard.json"))
	if err != nil {
		t.Fatal(err)
	}
	var dashboard struct {
		Panels []struct {
			ID      int
			Title   string
			Targets []struct{ Expr string }
		}
	}
	if err := json.Unmarshal(text, &dashboard); err != nil {
		t.Fatal(err)
	}
	rules := "groups:\n- name: dashboard\n  rules:\n"
	seen := map[int]bool{}
	for _, panel := range dashboard.Panels {
		if seen[panel.ID] || len(panel.Targets) == 0 {
			t.Errorf("the panel %q has the number %d of another, or no query", panel.Title, panel.ID)
		}
		seen[panel.ID] = true
		for _, target := range panel.Targets {
			for _, used := range regexp.MustCompile(`gpurun_\w+`).FindAllString(target.Expr, -1) {
				if !slices.ContainsFunc(families, func(f *family) bool { return f.name == used }) {
					t.Errorf("the panel %q uses %s, which is none of the metrics", panel.Title, used)
				}
			}
			rules += fmt.Sprintf("  - record: panel_%d\n    expr: %q\n", panel.ID, strings.ReplaceAll(target.Expr, "$__range", "1h"))
		}
	}
	if len(seen) < 10 {
		t.Errorf("%d panels", len(seen))
	}
	file := filepath.Join(t.TempDir(), "rules.yml")
	if err := os.WriteFile(file, []byte(rules), 0o600); err != nil {
		t.Fatal(err)
	}
	promtool(t, "", "check", "rules", file)
}

// Every metric has its row in the docs, with the words of its HELP, and there are no others.
func TestDocumented(t *testing.T) {
	page, err := os.ReadFile(filepath.Join("..", "..", "docs", "metrics.md"))
	if err != nil {
		t.Fatal(err)
	}
	rows := regexp.MustCompile("(?m)^\\| `(gpurun_\\w+)` \\|").FindAllStringSubmatch(string(page), -1)
	if len(rows) != len(families) {
		t.Errorf("%d rows for %d metrics", len(rows), len(families))
	}
	for _, f := range families {
		if row := regexp.MustCompile("(?m)^\\| `" + f.name + "` \\| .* \\| " + regexp.QuoteMeta(strings.TrimSuffix(f.help, ".")) + " \\|$"); !row.Match(page) {
			t.Errorf("docs/metrics.md has no row for %s: %s", f.name, f.help)
		}
	}
}

// What comes from the job, or holds a secret of it, is cleaned before it is a label.
func TestLabels(t *testing.T) {
	m := made(t, strategy.Metrics{}, mask.New([]string{"train.py", "--api-key", "verysecretvalue1"}, nil))
	for text, want := range map[string]string{
		"gpt":                      "gpt",
		"a\nb\x1b[2J\"\xff":        `a\nb\x1b[2J"\xff`,
		"with verysecretvalue1":    "with ***",
		strings.Repeat("ä", 129):   strings.Repeat("ä", 128) + "…",
		strings.Repeat("x", 128):   strings.Repeat("x", 128),
		strings.Repeat("x", 1<<20): strings.Repeat("x", 128) + "…",
		"\u202egnp.exe":            `\u202egnp.exe`,
	} {
		if got := m.label(text); got != want {
			t.Errorf("%.40q: %q, want %q", text, got, want)
		}
	}
	hostile := metricsBegan
	hostile.Name, hostile.Recipe = "a\nb{} 1\xff", "x\"} 5\n# HELP y"
	tell(m, nil, hostile)
	promtool(t, exposed(t, m), "check", "metrics")
}

// A run that continues counts what its earlier gpurun saw, and nothing twice; samples of an
// attempt that is over change nothing.
func TestResumedRun(t *testing.T) {
	m := made(t, strategy.Metrics{}, nil)
	m.Start(metricsEvents, func(text string) { t.Error(text) })
	defer m.Close()
	again := metricsBegan
	again.At = at.Add(time.Hour)
	tell(m, sampled(), again)
	text := values(exposed(t, m))
	for _, want := range []string{
		"gpurun_attempts_total 2\n", `gpurun_attempts_ended_total{cause="cuda-oom"} 1` + "\n", `gpurun_rungs_taken_total{rung="micro-batch"} 1` + "\n",
		"gpurun_attempt_running 0\n", "gpurun_run_start_timestamp_seconds 1.8e+09\n",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
	if strings.Contains(text, "gpurun_memory") {
		t.Errorf("memory of ranks that do not run:\n%s", text)
	}
}
