package cause

import (
	"math"
	"slices"
	"strings"
	"sync"
)

// A Sign is the sign by which the scanner sees that the job was started again.
type Sign string

const (
	// SignLauncher: a launcher, a scheduler or a shell wrote a line that begins a start.
	SignLauncher Sign = "launcher"
	// SignBanner: a framework wrote a line that it writes once, when a program begins.
	SignBanner Sign = "banner"
	// SignSteps: the steps began again.
	SignSteps Sign = "steps"
	// SignTime: the time at the beginning of the lines jumped.
	SignTime Sign = "time"
	// SignHead: the first lines of the output came again.
	SignHead Sign = "first-lines"
	// SignEnd: the process had ended before this error.
	SignEnd Sign = "end"
)

const (
	// startsLimit bounds the starts of a stream that are kept: beyond it, each takes the place of
	// the one before it.
	startsLimit = 64
	// flushed is the number of bytes that Python's own buffer holds: a process that ends may write
	// as many after its traceback.
	flushed = 8 << 10
	// timeAhead and timeBack are the seconds by which time jumps between two starts. Collectives
	// time out after at most half an hour.
	timeAhead, timeBack = 35 * 60, 60
	// beginningLines is the number of lines of a start that shows only its beginning.
	beginningLines = 12
	// aliveLines is the number of ordinary lines after the jump.
	aliveLines = 3
	// headLines is the number of first lines of the output that are remembered, and headAgain the
	// number of those that have to come again.
	headLines, headAgain = 32, 3
)

// An ending is the strongest sign that the present start has ended.
type ending uint8

const (
	notEnded ending = iota
	errorSeen
	// processLeft: an exception left the program.
	processLeft
	// endReported: a launcher, a scheduler or a shell reported the end.
	endReported
)

// A start is the state of the scanner between two beginnings. It looks for the next beginning
// only after an error that may have ended the start: in a log without errors nothing depends on
// its starts.
type start struct {
	number int     // 0: the first
	begins Finding // of its first line
	ending ending
	codes  []Code // of the errors, each once
	// several: the same cause ended several processes, as it ends the ranks of one job.
	several bool
	begun   bool // a line since may begin a start, or come from a buffer
	well    bool // a line since reported that the training ended well
	kept    int  // Scanner.remembered at the first error
	bytes   int  // since the last error
	before  int  // the last step before the error; 0: none
	// imported: the program ended at one of its imports, before it could make a step.
	imported bool
	steps    struct {
		weight, first, last int
		grows, direct       bool // the numbers only rise; the lines are not buffered
		text                string
	}
	// again are the first lines of the output that came again: the number of them, the index after
	// the last one, and the first one.
	again struct {
		lines, next, line int
		text              string
	}
	time  int64 // of the last line with a time, in seconds; 0: none
	jump  bool
	alive int // ordinary lines since the jump
}

// launcherLines are in lines that launchers, schedulers and shells write once, before the ranks
// start.
var launcherLines = []string{
	"nohup: ignoring input",
	// torchrun and torch.distributed.launch, all versions; elastic restarts.
	"Setting OMP_NUM_THREADS environment variable for each process", "Starting elastic_operator with launch configs",
	"torch.distributed.launch is deprecated", "will restart worker group", "estarting ", ", restart ",
	// accelerate, DeepSpeed.
	"values were not passed to `accelerate launch`", "main] cmd = ", "WORLD INFO DICT",
	// Slurm: srun, salloc, sbatch, and scripts that print its variables.
	"Starting with JobEnvironment(", " queued and waiting for resources", " has been allocated resources",
	"Granted job allocation", "Submitted batch job",
	"SLURM_JOB_ID", "SLURM_JOBID", "SLURM_NODELIST", "SLURM_JOB_NODELIST", "Slurm Prolog", "slurm prolog", "Slurm prolog",
	// Containers of NVIDIA, nvidia-smi at the beginning of scripts.
	"NVIDIA Release ", "Container image Copyright", "| NVIDIA-SMI ",
}

// bannerLines are in lines that frameworks log once, when a program begins. Logging writes at
// once, unlike print.
var bannerLines = []string{
	"GPU available: ", "nitializing distributed: GLOBAL_RANK", "lobal seed set to ", "Seed set to ", // Lightning
	"***** Running ", "Loading checkpoint shards:   0%", // transformers
	"cpu_feature_guard", "oneDNN custom operations are on", // TensorFlow
	"Setting ds_accelerator to", "Tracking run with wandb", "Load pretrained SentenceTransformer",
	"wandb: Currently logged in", "wandb: Syncing run",
	"Ultralytics ", "YOLOv5 ", "fairseq_cli.train", "Environment info:", "System environment:", // detectron2, mmengine
	"vLLM API server version", "nitializing a V1 LLM engine", "nitializing an LLM engine", "Started a local Ray instance",
	"using world size: ", "> initializing torch distributed", "distributed init (rank ", // these flush
}

// printedLines are in the first lines of scripts. A process that fails early may write them after
// its traceback, from its buffer.
var printedLines = []string{
	"Namespace(", "Using device", "using device", "device: cuda", "Device: cuda", "oading data", "oading model",
	"oading the ",
	"esuming from", "esume from", "oading checkpoint", "oaded checkpoint", "raining started", "tart training",
	"tarting training",
	"egin training", "umber of parameters", "rainable params", "rainable parameters", "Total params", "ommand line arg",
	"Command Line Args",
	"rguments:", "onfig: {", "onfiguration:", "tarting job", "ob started", "tart time", "starts on ", "unning on ",
	"tarted at",
}

var headings = sync.OnceValue(func() *prefilter {
	return newPrefilter(slices.Concat(launcherLines, bannerLines, printedLines))
})

// headingLimit is the largest length of a line that begins a start.
const headingLimit = 600

func finds(f *prefilter, text string) bool { return f.find([]byte(text)) != math.MaxInt }

// restart looks for the beginning of another start in a line after an error.
func (s *Scanner) restart(w *writer, text string, m move) {
	r := &s.start
	if r.ending == notEnded || w.traceback.open && (text == "" || text[0] == ' ') {
		return
	}
	r.bytes += len(text) + 1
	if sign := r.sign(text, m, s.redrawn); sign != "" {
		s.begin(nil, sign, s.line+1, text)
		return
	}
	if s.headComes(text, m) {
		s.begin(nil, SignHead, r.again.line, r.again.text)
	}
}

// noteHead remembers a line of the beginning of the output, unless an error or progress precedes
// it.
func (s *Scanner) noteHead(w *writer, text string) {
	if s.line >= headLines || s.start.number > 0 || s.start.ending != notEnded || w.traceback.open || moves(text).ok {
		return
	}
	h, ok := shape(text)
	if !ok {
		return
	}
	if i := slices.Index(s.head, h); i >= 0 {
		s.head[i] = 0 // it does not show a beginning
		return
	}
	s.head = append(s.head, h)
}

// headComes reports whether the line is one of the first lines of the output, and the last of
// several that came again in their order, after a process ended.
func (s *Scanner) headComes(text string, m move) bool {
	a := &s.start.again
	if s.start.ending < processLeft || a.next >= len(s.head) || m.ok {
		return false
	}
	h, ok := shape(text)
	if !ok {
		return false
	}
	i := slices.Index(s.head[a.next:], h)
	if i < 0 {
		return false
	}
	if a.lines == 0 {
		a.line, a.text = s.line+1, text
	}
	a.lines++
	a.next += i + 1
	return a.lines == headAgain
}

// shape is a number for a line without its digits, which is the same in each start. Only lines
// with words have one.
func shape(text string) (uint64, bool) {
	const offset, prime, letters = 14695981039346656037, 1099511628211, 8
	if len(text) > headingLimit || fails(text) {
		return 0, false
	}
	h, n := uint64(offset), 0
	for i := range len(text) {
		c := text[i]
		if c >= '0' && c <= '9' {
			continue
		}
		if letter(c) {
			n++
		}
		h = (h ^ uint64(c)) * prime // FNV-1a
	}
	return h, n >= letters
}

// sign returns the sign by which the line begins a start; empty: it does not.
func (r *start) sign(text string, m move, redrawn bool) Sign {
	if len(text) <= headingLimit {
		switch {
		case commands(text):
			return SignLauncher
		case !finds(headings(), text):
		case contains(text, launcherLines):
			return SignLauncher
		case fails(text):
		case contains(text, bannerLines):
			return SignBanner
		default:
			r.begun = true
			if r.bytes > flushed {
				return SignBanner
			}
		}
	}
	switch {
	case r.stepsAgain(text, m, redrawn):
		return SignSteps
	case r.ending >= processLeft && r.timeJumps(text):
		return SignTime
	}
	return ""
}

// stepsAgain reports whether the steps began again: at the first one, or before the last one.
// Lines that a process prints stay in its buffer until it ends, so they count only if they cannot
// come from the process that failed.
func (r *start) stepsAgain(text string, m move, redrawn bool) bool {
	c := &r.steps
	if !m.ok {
		well, _ := endsWell(text)
		r.well = r.well || well
		return r.well && c.weight >= wentOn
	}
	if text == c.text {
		return false
	}
	r.begun = r.begun || m.number <= 1 || m.number < r.before
	if c.weight == 0 || m.number < c.first {
		c.weight, c.first, c.grows, c.direct = 0, m.number, true, true
	}
	c.grows = c.grows && m.number >= c.last || c.weight == 0
	c.direct = c.direct && (redrawn || contains(text, rates) || stamp(text) != 0)
	c.weight += m.weight
	c.last, c.text = m.number, text
	switch {
	case c.weight < wentOn:
		return false
	case r.imported:
		return true
	case c.first > 1 && c.first >= r.before:
		return false
	}
	return r.before > 1 && c.first <= 1 || c.direct || r.bytes > flushed && c.grows
}

// timeJumps reports whether the time of the lines jumped, and ordinary lines follow.
func (r *start) timeJumps(text string) bool {
	at := stamp(text)
	if at == 0 {
		return false
	}
	if r.time != 0 && (at-r.time > timeAhead || r.time-at > timeBack) {
		r.jump, r.alive = true, 0
	}
	r.time = at
	if r.jump && !fails(text) &&
		!contains(text, []string{"illing", "erminat", "xit", "signal", "ubprocess", "return code"}) {
		r.alive++
	}
	return r.alive >= aliveLines
}

// begin begins a start. An error that begins it belongs to the given writer.
func (s *Scanner) begin(w *writer, sign Sign, line int, text string) {
	for _, key := range s.order {
		other := s.writers[key]
		other.close(s)
		other.pending, other.left = nil, false
		if other != w {
			if other.traceback.open {
				s.opened--
			}
			other.traceback = traceback{}
			other.closed, other.since, other.link, other.ended = traceback{}, math.MaxInt/2, noLink, lastException{}
		}
	}
	s.tail = s.tail[len(s.tail)-min(s.remembered-s.start.kept, len(s.tail)):]
	s.trendAt = 0
	s.recovering, s.left, s.leftBy, s.last = 0, 0, nil, nil
	s.raised = 0
	clear(s.weak)
	clear(s.logged)
	s.start = start{number: s.start.number + 1, well: s.start.well}
	s.seq++
	switch {
	case s.start.number == startsLimit:
		s.lastStart = s.seq
	case s.start.number > startsLimit:
		s.supersede()
	}
	s.start.begins = Finding{
		Code: None, Weight: WeightHarmless, Phase: NoPhase, Rank: -1, Start: s.start.number, Begins: sign,
		Stream: s.stream, Seq: s.seq, Line: line, Text: clip(strings.TrimSpace(text), textLimit),
	}
	s.give(s.start.begins)
}

// endsBare reports again the last beginning if the output ends with it: the start shows nothing.
func (s *Scanner) endsBare() {
	b := s.start.begins
	if b.Seq == 0 || s.seq != b.Seq || s.start.well || s.line-b.Line >= beginningLines {
		return
	}
	for line := range s.recent(beginningLines) {
		if moves(string(line)).ok {
			return
		}
	}
	b.Last = true
	s.give(b)
}

// supersede makes the findings of the start take the place of those of the start before it.
func (s *Scanner) supersede() {
	s.start.number = startsLimit
	last := s.seq - 1
	s.seq = s.lastStart
	for seq := s.seq; seq <= last; seq++ {
		s.give(Finding{Code: None, Weight: WeightHarmless, Phase: NoPhase, Rank: -1, Start: startsLimit, Stream: s.stream,
			Seq: seq})
	}
}

// ends notes an error that may have ended the present start. An error that cannot belong to it
// begins another one first.
func (s *Scanner) ends(w *writer, at *Finding, t *traceback) {
	how := endingOf(at, t)
	if how == notEnded || s.lsf.inside {
		return // the output of the job may follow LSF's report
	}
	r := &s.start
	if s.another(w, at, t) {
		s.begin(w, SignEnd, at.Line, at.Text)
	}
	if r.ending == notEnded {
		r.kept, r.before = s.remembered, s.lastMove()
		for line := range s.recent(64) {
			if r.time = stamp(string(line)); r.time != 0 {
				break
			}
		}
	}
	r.bytes, r.steps.weight, r.well, r.again.lines, r.again.next = 0, 0, false, 0, 0
	r.ending = max(r.ending, how)
	r.imported = r.before == 0 && how >= processLeft && at.Top && t.frames == t.modules && LacksModule(at.Text)
	if at.Weight == WeightCause {
		r.several = r.several || how == processLeft && w.left && slices.Contains(r.codes, at.Code)
		if !slices.Contains(r.codes, at.Code) { // a job may outlive its errors by the hundred thousand
			r.codes = append(r.codes, at.Code)
		}
		w.left = w.left || how == processLeft
	}
	s.watch = max(s.watch, afterLimit)
}

// another reports whether an error belongs to another start than those before it: an unrelated
// cause ended the process of the same writer, or the start.
func (s *Scanner) another(w *writer, at *Finding, t *traceback) bool {
	r := &s.start
	switch {
	case t.launcher && at.Weight == WeightSymptom:
		return false // it reports the end of what it started
	case at.Code == Preempted && at.Top && t.importing():
		return r.ending >= processLeft // it had just begun
	case len(r.codes) == 0 || at.Quoted:
		return false
	case at.Top && s.joinsLate(w) && !slices.Contains(r.codes, at.Code):
		return true
	case at.Weight != WeightCause || blames(at):
		return false
	case w.link != noLink:
		return false // raised from the error before it, or while that was handled
	case !at.Raised && (at.Code.OutOfMemory() && s.below(w) && w.since <= messageReach || w.continuesBare()) ||
		at.Code == UserError && contains(t.second.file, atExitWriters):
		return false // in the message of the error before it, or raised as its process ended
	case slices.ContainsFunc(r.codes, Code.LeavesNoGroup) && slices.Contains(Remarks(at.Code, at.Text), SaysNoGroup):
		return false // the job went on without the process group that it failed to make
	case at.Code == Preempted:
		return false // a scheduler cancels what hangs after an error
	case w.key != "" && r.ending == processLeft && !w.left && !r.begun:
		return false // of another rank
	case r.several && at.Code == UserError && !r.begun:
		return false // a rank of several, and its peers came before
	case r.begun && r.ending >= processLeft:
		return !slices.Contains(r.codes, at.Code)
	}
	return !slices.ContainsFunc(r.codes, func(code Code) bool { return related(code, at.Code) })
}

// joinsLate reports whether the writer is a rank of a process group, though a process that was in
// none had ended. PyTorch marks the exceptions of all ranks once the group exists.
func (s *Scanner) joinsLate(w *writer) bool {
	ofGroup := func(key string) bool { return strings.Contains(key, "[rank") }
	if !ofGroup(w.key) || s.start.ending < processLeft {
		return false
	}
	alone := false
	for _, key := range s.order {
		if s.writers[key].left {
			if ofGroup(key) {
				return false
			}
			alone = alone || key == ""
		}
	}
	return alone
}

// continuesBare reports whether the line is below an exception whose message begins on the next
// line.
func (w *writer) continuesBare() bool {
	return w.since <= 2 && w.ended.code == UserError && strings.HasSuffix(strings.TrimRight(w.ended.text, " "), "Error:")
}

// related reports whether two causes are one, or one can bring about the other. A program's index
// error can be behind an assertion on the device, and a GPU's error behind any other end.
func related(a, b Code) bool {
	explains := func(a, b Code) bool {
		entry, _ := Lookup(a)
		return slices.Contains(entry.Explains, b)
	}
	return a == b || explains(a, b) || explains(b, a) || a == DeviceAssert && b == UserError || a == UserError &&
		b == DeviceAssert
}

// blames reports whether an error only reports the failure of another process.
func blames(at *Finding) bool {
	if at.Code != UserError && at.Code != Unknown {
		return false
	}
	for _, r := range Remarks(at.Code, at.Text) {
		if r == SaysElsewhere || r == SaysWorker {
			return true
		}
	}
	return contains(at.Text, []string{
		"Connection", "EOFError", "Timeout", "timed out", "BrokenPipe", // to a process that is gone
		"exit code", "exit status", "exitcode", "ubprocess", "child process", "orker process", "return code",
	})
}

// endingOf returns the way in which an error may end a start.
func endingOf(at *Finding, t *traceback) ending {
	if at.Weight.Over() || !at.Raised && (at.Weight == WeightWarning || at.Code == Storage) || strings.HasPrefix(at.Text, "Search for `cuda") {
		return notEnded // a write may be tried again; the last is a part of PyTorch's messages
	}
	for _, r := range Remarks(at.Code, at.Text) {
		switch r {
		case SaysEnded, SaysKilled, SaysOOMKill, SaysCancelled, SaysTimeLimit, SaysNotRun:
			return endReported
		case SaysElsewhere:
			if at.Top {
				return endReported // a launcher's own exception
			}
		}
	}
	switch {
	case at.Code == Segfault || at.Code == Preempted:
		return endReported
	case at.Weight == WeightCause && at.Raised && !t.thread && !t.ignored && (at.Top || !t.header):
		return processLeft
	}
	return errorSeen
}
