package show

import (
	"regexp"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"pgregory.net/rapid"

	"github.com/gpurun/gpurun/launcher"
	"github.com/gpurun/gpurun/strategy"
	_ "github.com/gpurun/gpurun/test/testenv"
)

func seconds(d time.Duration) *strategy.Seconds {
	s := strategy.Seconds(d)
	return &s
}

func ptr[T any](v T) *T { return &v }

// training is a run in the midst of it.
func training() launcher.Status {
	return launcher.Status{
		Attempt: 1, MaxAttempts: 20, Step: 412, Total: 2000, Rate: 3.1, Loss: ptr(2.3125),
		Memory:  &launcher.StatusMemory{Device: "cuda:0", Used: 71 * gib, Peak: 76 * gib, Allowed: 80 * gib},
		Seconds: strategy.Seconds(12 * time.Minute), ETA: seconds(48 * time.Minute),
	}
}

func TestLine(t *testing.T) {
	retried, cpu, begun, plain := training(), training(), launcher.Status{Seconds: strategy.Seconds(7 * time.Second)}, training()
	retried.Memory.Retries = 3
	cpu.Rate, cpu.Total, cpu.ETA, cpu.Loss = .41, 0, nil, nil
	cpu.Memory = &launcher.StatusMemory{Device: "cpu", Used: 900 * mib, Peak: 1100 * mib}
	plain.Memory, plain.MaxAttempts = nil, 0
	little := training()
	little.Memory = &launcher.StatusMemory{Used: gib / 3, Peak: 19 * gib / 2, Allowed: 80 * gib}
	small := training()
	small.Memory = &launcher.StatusMemory{Device: "cpu", Used: 300*mib + 1, Allowed: 512*mib - 1} // rounded as in all messages
	stopped := training()
	stopped.MaxAttempts = 1 // attempt 0 was stopped from outside
	for _, test := range []struct {
		name    string
		status  launcher.Status
		columns int
		want    string
	}{
		{"all of it", training(), 120, "attempt 1 · step 412/2000 · loss 2.312 · 3.1 it/s · GPU 71/80 GiB (peak 76) ███▊ · 12m · ~48m left"},
		{"the limit of attempts", training(), 140, "attempt 1 (second of at most 20) · step 412/2000 · loss 2.312 · 3.1 it/s · GPU 71/80 GiB (peak 76) ███▊ · 12m · ~48m left"},
		{"more starts than count", stopped, 140, "attempt 1 · step 412/2000 · loss 2.312 · 3.1 it/s · GPU 71/80 GiB (peak 76) ███▊ · 12m · ~48m left"},
		{"80 columns", training(), 79, "attempt 1 · step 412/2000 · 3.1 it/s · GPU 71/80 GiB (peak 76) ███▊ · ~48m left"},
		{"40 columns", training(), 39, "attempt 1 · step 412/2000 · ~48m left"},
		{"60 columns", training(), 59, "attempt 1 · step 412/2000 · GPU 71/80 GiB · 12m · ~48m left"},
		{"10 columns", training(), 10, "step 412/2"},
		{"none", training(), 0, ""},
		{"retries", retried, 120, "attempt 1 · step 412/2000 · loss 2.312 · 3.1 it/s · GPU 71/80 GiB (peak 76) ███▊ · 3 retries · 12m · ~48m left"},
		{"slow steps on the CPU", cpu, 120, "attempt 1 (second of at most 20) · step 412 · 2.4 s/it · CPU 0.9 GiB (peak 1.1) · 12m"},
		{"little of much", little, 120, "attempt 1 (second of at most 20) · step 412/2000 · loss 2.312 · 3.1 it/s · GPU 0.3/80 GiB (peak 9.5) ▌ · 12m · ~48m left"},
		{"a small ceiling", small, 120, "attempt 1 (second of at most 20) · step 412/2000 · loss 2.312 · 3.1 it/s · CPU 300/512 MiB ██▍ · 12m · ~48m left"},
		{"nothing known yet", begun, 120, "attempt 0 · no step yet · 7s"},
		{"no memory", plain, 120, "attempt 1 · step 412/2000 · loss 2.312 · 3.1 it/s · 12m · ~48m left"},
	} {
		if got := StatusLine(test.status, test.columns, false); got != test.want {
			t.Errorf("%s: %q (%d), want %q", test.name, got, utf8.RuneCountInString(got), test.want)
		}
	}
}

// Memory is green, amber or red by its peak; nothing else has a colour but retries.
func TestLineColours(t *testing.T) {
	for _, test := range []struct {
		peak   int64
		colour string
	}{{63, "32"}, {64, "33"}, {73, "33"}, {74, "31"}, {80, "31"}} {
		s := training()
		s.Memory.Used, s.Memory.Peak = 10*gib, test.peak*gib
		got := StatusLine(s, 120, true)
		if !strings.Contains(got, "\x1b["+test.colour+"mGPU 10/80 GiB\x1b[0m") {
			t.Errorf("a peak of %d of 80 GiB: %q", test.peak, got)
		}
		if plain := strings.Split(got, "GPU")[0]; strings.Count(plain, "\x1b") != 1 {
			t.Errorf("a colour before the memory: %q", plain)
		}
	}
	unknown := training()
	unknown.Memory.Allowed = 0
	if got := StatusLine(unknown, 120, true); strings.Contains(got, "\x1b") {
		t.Errorf("a colour where nothing is known of what is allowed: %q", got)
	}
}

var styles = regexp.MustCompile(`\x1b\[\d*m`)

// Whatever is known, the line fits, with colour as without.
func TestTheLineFits(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		number := rapid.Int64Range(0, 1<<50)
		s := launcher.Status{
			Attempt: rapid.IntRange(0, 1e6).Draw(t, "attempt"), MaxAttempts: rapid.IntRange(0, 100).Draw(t, "most"), Step: int(number.Draw(t, "step")), Total: int(number.Draw(t, "total")),
			Rate: rapid.Float64Range(0, 1e9).Draw(t, "rate"), Seconds: strategy.Seconds(number.Draw(t, "seconds")),
			Memory: &launcher.StatusMemory{Used: number.Draw(t, "used"), Peak: number.Draw(t, "peak"), Allowed: number.Draw(t, "allowed"), Retries: number.Draw(t, "retries")},
		}
		columns := rapid.IntRange(0, 150).Draw(t, "columns")
		plain, coloured := StatusLine(s, columns, false), StatusLine(s, columns, true)
		if utf8.RuneCountInString(plain) > columns || styles.ReplaceAllString(coloured, "") != plain {
			t.Fatalf("%d columns: %q, %q", columns, plain, coloured)
		}
	})
}

func TestShort(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0: "0s", -time.Second: "0s", 59 * time.Second: "59s", time.Minute: "1m", 59*time.Minute + 59*time.Second: "59m",
		65 * time.Minute: "1h05m", 25 * time.Hour: "1d01h",
	} {
		if got := short(d); got != want {
			t.Errorf("%s: %q, want %q", d, got, want)
		}
	}
}
