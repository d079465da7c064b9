// These functions read /proc: processes, and the machine.

package system

import (
	"bytes"
	"errors"
	"os"
	"strconv"
	"strings"
)

// A Stat is /proc/PID/stat: its fields, which man 5 proc_pid_stat numbers from 1.
type Stat []string

// ReadStat reads that of a process. The error wraps fs.ErrNotExist, or ESRCH, for no process.
func ReadStat(pid int) (Stat, error) {
	data, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return nil, err
	}
	return ParseStat(data)
}

// ParseStat reads the line. The name is in parentheses and may itself hold spaces and
// parentheses, so that the fields are counted from the last closing one.
func ParseStat(data []byte) (Stat, error) {
	open, end := bytes.IndexByte(data, '('), bytes.LastIndexByte(data, ')')
	if open < 1 || end < open {
		return nil, errors.New("parse /proc/PID/stat: no name in parentheses")
	}
	return append(Stat{string(data[:open-1]), string(data[open+1 : end])}, strings.Fields(string(data[end+1:]))...), nil
}

// Field is one of them; empty where this kernel does not have it.
func (s Stat) Field(number int) string {
	if number > len(s) {
		return ""
	}
	return s[number-1]
}

// Name is the process's, as ps shows it.
func (s Stat) Name() string { return s[1] }

// ReadStatus reads /proc/PID/status.
func ReadStatus(pid int) (map[string]string, error) {
	data, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/status")
	return ProcFields(data), err
}

// ProcFields are lines of the form "Name:\tvalue".
func ProcFields(text []byte) map[string]string {
	fields := make(map[string]string, 64)
	for line := range strings.Lines(string(text)) {
		name, value, _ := strings.Cut(line, ":")
		fields[strings.TrimSpace(name)] = strings.TrimSpace(value)
	}
	return fields
}

// ProcBytes is a value such as "12 kB" in bytes, 0 where it is none.
func ProcBytes(value string) int64 {
	n, _ := strconv.ParseInt(strings.TrimSuffix(value, " kB"), 10, 64)
	return n << 10
}

// ChildProcesses lists the children of all threads of a process, those included that were re-parented
// to it. It reports false where the kernel has no file for it (CONFIG_PROC_CHILDREN), and of a
// process that has ended.
func ChildProcesses(pid int) (pids []int, known bool) {
	dir := "/proc/" + strconv.Itoa(pid) + "/task/"
	tasks, _ := os.ReadDir(dir)
	for _, task := range tasks {
		text, err := os.ReadFile(dir + task.Name() + "/children")
		if err != nil {
			continue // the thread has ended, or the kernel has no such file
		}
		known = true
		for word := range strings.FieldsSeq(string(text)) {
			if child, err := strconv.Atoi(word); err == nil {
				pids = append(pids, child)
			}
		}
	}
	return pids, known
}
