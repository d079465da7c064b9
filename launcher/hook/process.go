package hook

import (
	"bytes"
	"github.com/gpurun/gpurun/launcher/system"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// statField is a number in /proc/PID/stat, 0 where there is no such process.
func statField(pid, number int) int {
	s, err := system.ReadStat(pid)
	if err != nil {
		return 0
	}
	n, _ := strconv.Atoi(s.Field(number))
	return n
}

// parentOf is the parent of a process, 0 where there is none.
func parentOf(pid int) int { return statField(pid, 4) }

// lives reports whether a process has not ended.
func lives(pid int) bool {
	s, err := system.ReadStat(pid)
	return err == nil && s.Field(3) != "Z" && s.Field(3) != "X"
}

// startOf is when a process began.
func startOf(pid int) time.Time {
	const second = 100 // USER_HZ
	now, ticks := time.Now(), statField(pid, 22)
	text, _ := os.ReadFile("/proc/uptime")
	up, _, _ := strings.Cut(string(text), " ")
	seconds, err := strconv.ParseFloat(up, 64)
	if err != nil || ticks == 0 {
		return now
	}
	return now.Add(-time.Duration((seconds - float64(ticks)/second) * float64(time.Second)))
}

func procFile(pid int, name string) string { return filepath.Join("/proc", strconv.Itoa(pid), name) }

// isPython reports whether a process runs Python.
func isPython(pid int) bool {
	exe, err := os.Readlink(procFile(pid, "exe"))
	name := filepath.Base(exe)
	return err == nil && (strings.HasPrefix(name, "python") || strings.HasPrefix(name, "pypy"))
}

// usesTorch reports whether a process has loaded PyTorch.
func usesTorch(pid int) bool {
	text, err := os.ReadFile(procFile(pid, "maps"))
	return err == nil && bytes.Contains(text, []byte("/libtorch"))
}

// runsOf names what a Python process runs: the scripts and modules of its command line.
func runsOf(pid int) string {
	text, _ := os.ReadFile(procFile(pid, "cmdline"))
	words := strings.Split(strings.TrimRight(string(text), "\x00"), "\x00")
	var scripts []string
	for i := 1; i < len(words); i++ {
		if strings.HasSuffix(words[i], ".py") || words[i-1] == "-m" {
			scripts = append(scripts, filepath.Base(words[i]))
		}
	}
	return strings.Join(scripts, " ")
}
