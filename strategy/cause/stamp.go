package cause

import (
	"strings"
	"time"
)

// stampReach is the largest distance of the time from the beginning of a line.
const stampReach = 12

// stamp reads the time at the beginning of a line of a logger, in seconds, without its zone; 0:
// none. It knows "2026-03-02 10:11:12", with "T" or "/" as well, and glog's "I0302 10:11:12",
// which has no year.
func stamp(text string) int64 {
	clock := strings.IndexByte(text, ':')
	if clock < 10 || clock > stampReach+13 || len(text) < clock+6 || text[clock+3] != ':' {
		return 0
	}
	day := text[:clock-2]
	hour, minute, second := number2(text[clock-2:]), number2(text[clock+1:]), number2(text[clock+4:])
	day = strings.TrimRight(day, " T")
	year, month, date := 1970, -1, -1
	if n := len(day); n >= 10 && (day[n-3] == '-' || day[n-3] == '/') && day[n-6] == day[n-3] && digits(day[n-10:n-6]) {
		year, month, date = number2(day[n-10:])*100+number2(day[n-8:]), number2(day[n-5:]), number2(day[n-2:])
	} else if n >= 5 && strings.IndexByte("IWEF", day[n-5]) >= 0 {
		month, date = number2(day[n-4:]), number2(day[n-2:])
	}
	if month < 1 || month > 12 || date < 1 || hour < 0 || minute < 0 || second < 0 {
		return 0
	}
	return time.Date(year, time.Month(month), date, hour, minute, second, 0, time.UTC).Unix()
}

// number2 reads two digits; -1: there are none.
func number2(text string) int {
	if len(text) < 2 || !digits(text[:2]) {
		return -1
	}
	return int(text[0]-'0')*10 + int(text[1]-'0')
}

// runs are the words with which a command line begins a job.
var runs = []string{
	"python", "torchrun", "accelerate ", "deepspeed ", "srun ", "sbatch ", "bash ", "sh ", "./", "mpirun ", "mpiexec ",
	"nohup ", "uv run ",
	"poetry run ", "conda run ", "make ", "docker ", "singularity ", "apptainer ", "CUDA_VISIBLE_DEVICES=", "colossalai ",
	"horovodrun ",
	"lightning ", "fairseq-train", "yolo ", "llamafactory-cli ", "axolotl ", "tune run ", "composer ", "jupyter ",
	"gpurun ", "time ", "env ", "sudo ", "exec ",
}

// commands reports whether a line is a shell's prompt, or its trace (set -x), with a command that
// runs a program.
func commands(text string) bool {
	rest, ok := strings.CutPrefix(text, "+ ")
	for i := 0; !ok && i < len(text)-1 && i < 160; i++ {
		if text[i+1] != ' ' || strings.IndexByte("$#%>❯", text[i]) < 0 {
			continue
		}
		prompt := text[:i]
		if prompt == "" || strings.ContainsAny(prompt, "@~") || strings.HasSuffix(prompt, "PS") ||
			strings.Contains(prompt, `:\`) {
			rest, ok = text[i+2:], text[i] != '#' || prompt != ""
		}
		break
	}
	return ok && hasPrefix(strings.TrimLeft(rest, " "), runs)
}
