package notify

import (
	"slices"
	"strconv"
	"time"

	"github.com/gpurun/gpurun/launcher/journal"
	"github.com/gpurun/gpurun/strategy"
)

// A family is one metric. All have the labels job_name and run, so that the files of several
// jobs can be scraped together.
type family struct {
	name, help, kind string
	labels           []string
}

var families []*family

func gauge(name, help string, labels ...string) *family {
	return newFamily("gauge", name, help, labels)
}

func counter(name, help string, labels ...string) *family {
	return newFamily("counter", name, help, labels)
}

func newFamily(kind, name, help string, labels []string) *family {
	f := &family{name, help, kind, append([]string{"job_name", "run"}, labels...)}
	families = append(families, f)
	return f
}

// The metrics. The labels cause, remedy and outcome have the words of verdict.json.
var (
	runInfo = gauge("gpurun_run_info",
		"The run: gpurun's version, the job's recipe, its user, and its model once a process "+
			"has reported it; always 1.", "version", "recipe", "user", "model")
	runStart = gauge("gpurun_run_start_timestamp_seconds", "When the run began, in seconds since 1970.")
	runEnd   = gauge("gpurun_run_end_timestamp_seconds",
		"When the run ended, in seconds since 1970; absent before that.")
	runOutcome  = gauge("gpurun_run_outcome", "1 for how the run ended, else 0: all are 0 before that.", "outcome")
	runExitCode = gauge("gpurun_run_exit_code", "The exit code of the run; absent before its end.")

	attemptsStarted = counter("gpurun_attempts_total", "Attempts that were started.")
	attemptsLimit   = gauge("gpurun_attempts_limit", "Attempts that the run may have.")
	attemptsEnded   = counter("gpurun_attempts_ended_total",
		"Attempts that ended, by cause; none for one that trained to its end.", "cause")
	remediesTaken = counter("gpurun_rungs_taken_total", "Remedies that were applied, by name.", "rung")
	inPlaceSteps  = counter("gpurun_in_place_steps_total",
		"Steps that ran out of memory and were done again in place.")
	inPlaceSeconds = counter("gpurun_in_place_seconds_total", "Time that was spent on doing them again.")
	gpuSeconds     = gauge("gpurun_gpu_seconds", "GPU time of the attempts that ended: seconds times ranks.")
	gpuLost        = gauge("gpurun_gpu_lost_seconds", "The part of it that no later attempt continued.")
	gpuRescued     = gauge("gpurun_gpu_rescued_seconds", "The part of it since the first rescue that was not lost.")
	attemptNumber  = gauge("gpurun_attempt", "The number of the latest attempt, from 0.")
	attemptRunning = gauge("gpurun_attempt_running", "1 while the ranks of the latest attempt run, else 0.")
	attemptStart   = gauge("gpurun_attempt_start_timestamp_seconds",
		"When the latest attempt was started, in seconds since 1970.")

	trainingStep = gauge("gpurun_training_step",
		"The latest step of a rank, for ranks that count the same steps.", "rank")
	trainingSteps = gauge("gpurun_training_steps", "The number of all steps, if the job reports it.")
	lastStep      = gauge("gpurun_last_step_timestamp_seconds",
		"When the step last changed, in seconds since 1970; before the first step, when the attempt was started.")
	stepDuration     = gauge("gpurun_step_duration_seconds", "The mean time of a step in the last minute.")
	samplesPerSecond = gauge("gpurun_samples_per_second",
		"Samples that all ranks process in a second, in the last minute.")

	memoryUsed = gauge("gpurun_memory_used_bytes",
		"Memory that PyTorch has allocated for a rank now; on the CPU, the process's memory.", "rank", "device")
	memoryReserved = gauge("gpurun_memory_reserved_bytes",
		"Memory that PyTorch has reserved for a rank now.", "rank", "device")
	memoryPeak = gauge("gpurun_memory_peak_bytes",
		"The most memory allocated for a rank in the latest attempt.", "rank", "device")
	memoryAllowed = gauge("gpurun_memory_allowed_bytes", "Memory that a rank may use.", "rank", "device")
	deviceUsed    = gauge("gpurun_device_memory_used_bytes",
		"Memory of a rank's device in use by all processes, by the driver's count.", "rank", "device")
	deviceCapacity = gauge("gpurun_device_memory_capacity_bytes", "The memory of a rank's device.", "rank", "device")
	retries        = counter("gpurun_allocator_retries_total",
		"How often PyTorch's allocator released its cache to find memory, in the latest attempt.", "rank", "device")
	predictedPeak = gauge("gpurun_predicted_peak_bytes",
		"The predicted peak of the latest attempt on a device: the mean and the bound.", "estimate")
	measuredMaximum = gauge("gpurun_measured_peak_bytes",
		"The most memory allocated for any rank of the latest attempt.")
)

// outcomes are all outcomes of a run.
var outcomes = []strategy.Outcome{
	strategy.Trained, strategy.Failed, strategy.Exhausted, strategy.Stopped, strategy.Retry,
}

// collect sends the values of all metrics, with all labels. A run that has not begun has no metrics.
func (m *Exporter) collect(to valueSender) {
	user := m.user() // before the lock, for which events wait
	m.mu.Lock()
	defer m.mu.Unlock()
	r := &m.state
	if r.Began.Run == "" {
		return
	}
	run := []string{m.label(r.Began.Name), m.label(r.Began.Run)}
	send := valueSender(func(f *family, value float64, labels ...string) {
		to(f, value, append(run[:2:2], labels...)...)
	})
	send(runInfo, 1, m.label(r.Began.Version), m.label(r.Began.Recipe), m.label(user), m.label(r.Model))
	send.run(r, m.ended)
	if r.Launched() == nil {
		return
	}
	send.attempt(r)
	send.pace(r)
	for _, sample := range r.Progress.Samples {
		if sample.Total == r.Progress.Lead.Total { // some may count micro batches, others steps of the optimizer
			send.known(trainingStep, float64(sample.Step), strconv.Itoa(sample.Rank))
		}
		if !r.Running() { // its memory is free
			sample.Allocated, sample.Reserved, sample.Used = 0, 0, 0
		}
		send.memory(sample, m.label(sample.Device))
	}
}

// A valueSender sends the value of a metric.
type valueSender func(f *family, value float64, labels ...string)

// known sends a value that is not zero: zero is not known.
func (t valueSender) known(f *family, value float64, labels ...string) {
	if value != 0 {
		t(f, value, labels...)
	}
}

func (t valueSender) run(r *journal.Run, ended time.Time) {
	started := 0
	if last := r.Launched(); last != nil {
		started = last.N + 1
	}
	t.known(runStart, seconds(r.First.At))
	t(attemptsStarted, float64(started))
	t.known(attemptsLimit, float64(r.Began.Policy.MaxAttempts))
	var outcome strategy.Outcome
	if r.Verdict != nil {
		outcome = r.Verdict.Outcome
		t(runEnd, seconds(ended))
		t(runExitCode, float64(r.Verdict.Code))
	}
	for _, o := range outcomes {
		t(runOutcome, number(o == outcome), string(o))
	}
	all := r.Tally()
	t(inPlaceSteps, float64(all.InPlaceSteps))
	t(inPlaceSeconds, all.InPlaceTime.Duration().Seconds())
	if r.GPUTime != nil {
		t(gpuSeconds, r.GPUTime.Total)
		t(gpuLost, r.GPUTime.Lost)
		t(gpuRescued, r.GPUTime.Rescued)
	}
	for c, n := range all.Causes {
		t(attemptsEnded, float64(n), string(c))
	}
	for remedy, n := range all.Remedies {
		t(remediesTaken, float64(n), string(remedy))
	}
}

func (t valueSender) attempt(r *journal.Run) {
	last := r.Launched()
	t(attemptNumber, float64(last.N))
	t(attemptRunning, number(r.Running()))
	t.known(attemptStart, seconds(last.At))
	t.known(lastStep, seconds(r.Progress.Stepped))
	if p := last.Expected; p != nil && p.Unknown == "" {
		t(predictedPeak, float64(p.Mean), "mean")
		t(predictedPeak, float64(p.Bound), "bound")
	}
	t.known(trainingSteps, float64(r.Progress.Lead.Total))
	t.known(measuredMaximum, float64(r.Progress.Peak))
}

// pace sends the time of a step, and the samples in a second.
func (t valueSender) pace(r *journal.Run) {
	rate := r.Progress.Rate
	if !r.Running() || rate <= 0 {
		return
	}
	t(stepDuration, 1/rate)
	if !slices.ContainsFunc(r.Progress.Samples, func(s strategy.Sample) bool { return s.Batches }) {
		t.known(samplesPerSecond, rate*float64(r.Began.Job.GlobalBatch(r.Launched().Plan)))
	}
}

func (t valueSender) memory(sample strategy.Sample, device string) {
	if device == "" {
		return
	}
	rank := strconv.Itoa(sample.Rank)
	t.known(memoryUsed, float64(sample.Allocated), rank, device)
	t.known(memoryReserved, float64(sample.Reserved), rank, device)
	t.known(memoryPeak, float64(sample.Peak), rank, device)
	t.known(memoryAllowed, float64(sample.Allowed), rank, device)
	t.known(deviceUsed, float64(sample.Used), rank, device)
	t.known(deviceCapacity, float64(sample.Capacity), rank, device)
	if sample.Peak > 0 {
		t(retries, float64(sample.Retries), rank, device)
	}
}

// seconds is a time in seconds since 1970, 0 where it is not known.
func seconds(at time.Time) float64 {
	if at.IsZero() {
		return 0
	}
	return float64(at.UnixMilli()) / 1000
}

func number(truth bool) float64 {
	if truth {
		return 1
	}
	return 0
}
