package strategy

import (
	"fmt"
	"slices"
	"strings"

	"github.com/gpurun/gpurun/strategy/cause"
)

// GiB writes bytes as a person reads them: "2.0 GiB", "512 MiB", "3 KiB".
func GiB(bytes int64) string {
	const kib, mib, gib = 1 << 10, 1 << 20, 1 << 30
	switch {
	case bytes >= 100*gib:
		return fmt.Sprintf("%.0f GiB", float64(bytes)/gib)
	case bytes >= gib:
		return fmt.Sprintf("%.1f GiB", float64(bytes)/gib)
	case bytes >= mib:
		return fmt.Sprintf("%.0f MiB", float64(bytes)/mib)
	case bytes >= kib:
		return fmt.Sprintf("%.0f KiB", float64(bytes)/kib)
	}
	return fmt.Sprintf("%d bytes", bytes)
}

// Sentence says the diagnosis in a few words, without a full stop: "CUDA out of
// memory in backward on rank 5 at train.py:25 (wanted 2.0 GiB, 0.3 GiB free of 80 GiB)".
func (d Diagnosis) Sentence() string {
	if !d.Fatal {
		return "nothing fatal"
	}
	var b strings.Builder
	b.WriteString(d.title())
	if d.Late {
		b.WriteString(" late in the run")
	}
	if d.Phase != "" && d.Phase != cause.NoPhase {
		fmt.Fprintf(&b, " in %s", d.Phase)
	}
	if d.Rank >= 0 {
		fmt.Fprintf(&b, " on rank %d", d.Rank)
		if d.Node != "" {
			b.WriteString(" of " + d.Node)
		}
	}
	if d.Place != nil && d.Cause.OutOfMemory() {
		fmt.Fprintf(&b, " at %s", clip(d.Place.String(), 80))
	}
	if figures := d.figures(); figures != "" {
		fmt.Fprintf(&b, " (%s)", figures)
	}
	return b.String()
}

func (d Diagnosis) title() string {
	if d.Lost != nil {
		return d.Lost.String()
	}
	switch d.Cause {
	case cause.CUDAOOM:
		return "CUDA out of memory"
	case cause.HostOOM:
		if d.Device == "cpu" {
			return "CPU out of memory"
		}
		return "host out of memory"
	case cause.UserError:
		switch {
		case d.Place != nil:
			return clip(d.Place.String(), 80) + ": " + clip(d.Error, 160)
		case d.Error != "":
			return clip(d.Error, 160)
		}
	case cause.GPUHardware:
		if slices.Contains(cause.Remarks(d.Cause, d.Error), cause.SaysNode) {
			return "a node failed"
		}
	case cause.Unknown:
		if d.ExitCode == 0 {
			return "ended for an unknown reason"
		}
		if d.ExitCode > 128 && d.ExitCode <= 128+sigSYS {
			return fmt.Sprintf("ended by signal %d for an unknown reason", d.ExitCode-128)
		}
		return fmt.Sprintf("ended with exit code %d for an unknown reason", d.ExitCode)
	}
	if c, known := cause.Lookup(d.Cause); known {
		return c.Title
	}
	return string(d.Cause)
}

func (d Diagnosis) figures() string {
	words := d.faulty()
	if d.Requested != nil {
		words = append(words, "wanted "+GiB(*d.Requested))
	}
	switch {
	case d.Free != nil && d.Capacity != nil:
		words = append(words, fmt.Sprintf("%s free of %s", GiB(*d.Free), GiB(*d.Capacity)))
	case d.Capacity != nil:
		words = append(words, "of "+GiB(*d.Capacity))
	}
	if d.Allowed != nil {
		words = append(words, GiB(*d.Allowed)+" allowed")
	}
	if d.Growth != nil {
		words = append(words, fmt.Sprintf("a leak: %s grew by %s a step", d.Growth.Word, GiB(d.Growth.PerStep)))
	}
	if d.Cause == cause.Hang && d.Error != "" {
		words = append(words, clip(d.Error, 240))
	}
	if d.Impossible {
		words = append(words, "one request larger than the device can hold")
	}
	return strings.Join(words, ", ")
}

// clip shortens a line for a sentence, before a word: half of a secret would not be
// known for one.
func clip(s string, n int) string {
	if len(s) <= n {
		return s
	}
	if blank := strings.LastIndexByte(s[:n+1], ' '); blank > 0 {
		return s[:blank] + " …"
	}
	return strings.ToValidUTF8(s[:n], "") + "…"
}
