package cause

import (
	"bytes"
	"slices"
	"strings"
)

// Growth is memory use that rose step after step up to the last one, by the job's output.
type Growth struct {
	// Word is the name of the figure: "mem", "RSS".
	Word string `json:"word"`
	// Host: the figure is the process's memory on the host; otherwise it may be a device's.
	Host bool `json:"host,omitempty"`
	// PerStep is the slope in bytes per step.
	PerStep int64 `json:"bytes_per_step"`
	// FromStep and ToStep are the first and the last step of the trend, and From and To the bytes
	// in use at these steps.
	FromStep int   `json:"from_step"`
	ToStep   int   `json:"to_step"`
	From     int64 `json:"from_bytes"`
	To       int64 `json:"to_bytes"`
}

const (
	// growthReadings is the least number of readings for a trend.
	growthReadings = 8
	// growthLines is the number of last lines that are searched for readings.
	growthLines = 256
	// growthPiece is the number of bytes of output after which a trend is read again: jobs may raise
	// and catch thousands of errors.
	growthPiece = tailLimit / 16
	// growthShare is the least rise, as a share of the last reading: figures are rounded, and an
	// allocator warms up.
	growthShare = 0.02
)

// A memoryReading is the memory in use on a line of progress.
type memoryReading struct {
	step  int
	bytes int64
}

// Growth is the trend of the memory in use at the last steps. It is nil unless the memory rose
// nearly every step, as fast in the end as before: a warm-up flattens.
func (s *Scanner) Growth() *Growth {
	readings, word := s.readings()
	if len(readings) < growthReadings {
		return nil
	}
	first, middle, last := readings[0], readings[len(readings)/2], readings[len(readings)-1]
	if float64(last.bytes-first.bytes) < growthShare*float64(last.bytes) {
		return nil
	}
	falls, flats := 0, 0
	for i, r := range readings[1:] {
		switch d := r.bytes - readings[i].bytes; {
		case d < 0:
			falls++
		case d == 0:
			flats++
		}
	}
	if falls > len(readings)/8 || flats > len(readings)/2 {
		return nil
	}
	early := float64(middle.bytes-first.bytes) / float64(middle.step-first.step)
	late := float64(last.bytes-middle.bytes) / float64(last.step-middle.step)
	if early <= 0 || late < early/3 || late > early*3 {
		return nil
	}
	return &Growth{
		Word: word, Host: hostWord(word), PerStep: (last.bytes - first.bytes) / int64(last.step-first.step),
		FromStep: first.step, ToStep: last.step, From: first.bytes, To: last.bytes,
	}
}

// recentGrowth is Growth as of shortly before.
func (s *Scanner) recentGrowth() *Growth {
	if s.remembered >= s.trendAt {
		s.trend, s.trendAt = s.Growth(), s.remembered+growthPiece
	}
	return s.trend
}

// readings returns the last lines of progress that give the memory in use under the same word as
// the last one, oldest first, with rising steps.
func (s *Scanner) readings() (all []memoryReading, word string) {
	if !slices.ContainsFunc(memoryWords, func(w string) bool { return bytes.Contains(last(s.tail), []byte(w)) }) {
		return nil, ""
	}
	for raw := range s.recent(growthLines) {
		line := strip(plain(raw)).text
		used, key, ok := memoryIn(line)
		if !ok || word != "" && key != word {
			continue
		}
		n, ok := anyStep(line)
		if !ok || len(all) > 0 && n >= all[len(all)-1].step {
			continue
		}
		word = key
		all = append(all, memoryReading{n, used})
	}
	slices.Reverse(all)
	return all, word
}

// anyStep reads the number of the step on a line, with or without a loss.
func anyStep(line string) (int, bool) {
	if n, _, ok := step(line); ok {
		return n, true
	}
	return numberAfterAny(line, "iteration", "step", "Step", "iter", "Iter", "[")
}

// memoryWords begin the names that jobs give to the memory in use. "max mem" and "memory" precede
// megabytes without a unit in the logs of DETR, mmcv and their descendants.
var memoryWords = []string{"mem", "Mem", "MEM", "rss", "RSS", "vram", "VRAM", "alloc", "Alloc"}

func hostWord(word string) bool {
	word = strings.ToLower(word)
	return strings.Contains(word, "rss") || strings.Contains(word, "cpu") || strings.Contains(word, "host")
}

// memoryIn reads "mem 12.3GB", "max_mem: 5021M", "memory: 12.34GiB(45%)",
// "max mem: 17330". Word is the name without the value.
func memoryIn(line string) (used int64, word string, ok bool) {
	for _, key := range memoryWords {
		for rest := range behind(line, key) {
			end := len(line) - len(rest)
			begin := end - len(key)
			for end < len(line) && end-begin < 40 && (letter(line[end]) || strings.IndexByte("_-/()", line[end]) >= 0) {
				end++
			}
			value := strings.TrimLeft(line[end:], "'\" :=[")
			if len(line[end:])-len(value) > 6 {
				continue
			}
			for begin > 0 && (letter(line[begin-1]) || line[begin-1] == '_') {
				begin--
			}
			if b, ok := amount(value, line[begin:end]); ok {
				return b, line[begin:end], true
			}
		}
	}
	return 0, "", false
}

// amount reads a quantity of memory; without a unit, megabytes.
func amount(text, word string) (int64, bool) {
	if b, n := quantity(text); n > 0 && b != nil {
		return *b, true
	}
	number, rest := leadingDigits(text, 9)
	if len(number) < 3 || rest != "" && (letter(rest[0]) || strings.IndexByte(".%/", rest[0]) >= 0) || word != "mem" &&
		word != "memory" {
		return 0, false
	}
	b, k := quantity(number + "MiB")
	return *b, k > 0
}
