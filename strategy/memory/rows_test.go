package memory_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"testing"
)

// A row is one measured plan of testdata; testdata/README.md explains its keys.
type row struct {
	Model            string  `json:"model"`
	Sequence         int     `json:"sequence"`
	Micro            int     `json:"micro"`
	Accum            int     `json:"accum"`
	Params           string  `json:"params"`
	Amp              string  `json:"amp"`
	Ckpt             string  `json:"ckpt"`
	By               string  `json:"by"`
	Optim            string  `json:"optim"`
	Attn             string  `json:"attn"`
	Engine           string  `json:"engine"`
	Sharding         string  `json:"sharding"`
	Zero             int     `json:"zero"`
	Buckets          string  `json:"buckets"`
	OffloadOptimizer string  `json:"offload_optimizer"`
	OffloadParam     string  `json:"offload_param"`
	Ranks            int     `json:"ranks"`
	NParams          int64   `json:"n_params"`
	InitPeak         int64   `json:"init_peak"`
	StaticLoad       int64   `json:"static_load"`
	AfterForward     int64   `json:"after_forward"`
	BeforeOptim      int64   `json:"before_optim"`
	PeakBeforeOptim  int64   `json:"peak_before_optim"`
	PeakOptim        int64   `json:"peak_optim"`
	AfterStep1       int64   `json:"after_step1"`
	PeakLater        int64   `json:"peak_later"`
	PeakAllocated    int64   `json:"peak_allocated"`
	PeakReserved     int64   `json:"peak_reserved"`
	Outside          int64   `json:"outside"`
	HostPeak         int64   `json:"host_peak"`
	PinnedPeak       int64   `json:"pinned_peak"`
	StepSeconds      float64 `json:"step_s"`
}

// plan formats the keys that decide about memory.
func (r row) plan() string {
	return fmt.Sprintf("%s s%d b%d×%d %s/%s %s(%s) %s %s %s %s offload %s,%s ranks %d", r.Model, r.Sequence, r.Micro, r.Accum, r.Params, r.Amp,
		r.Ckpt, r.By, r.Optim, r.Attn, r.Sharding, r.Buckets, r.OffloadOptimizer, r.OffloadParam, r.Ranks)
}

// perParameter gives bytes for each parameter.
func (r row) perParameter(bytes int64) float64 { return float64(bytes) / float64(r.NParams) }

// readRows reads a file of testdata: lines without micro are its models.
func readRows(t *testing.T, name string) (rows []row, parameters map[string]int64) {
	t.Helper()
	f, err := os.Open(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	parameters = map[string]int64{}
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var r row
		var head struct {
			Model  string          `json:"model"`
			Micro  *int            `json:"micro"`
			Params json.RawMessage `json:"params"`
		}
		if err := json.Unmarshal(lines.Bytes(), &head); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if head.Micro == nil {
			var count int64
			if err := json.Unmarshal(head.Params, &count); err != nil {
				t.Fatalf("%s: parameters of %s: %v", name, head.Model, err)
			}
			parameters[head.Model] = count
			continue
		}
		if err := json.Unmarshal(lines.Bytes(), &r); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		rows = append(rows, r)
	}
	if err := lines.Err(); err != nil {
		t.Fatal(err)
	}
	return rows, parameters
}

var rowFiles = map[string]int{"h200-deepspeed.jsonl": 61, "h200-hooks.jsonl": 22, "h200-lengths.jsonl": 39}

// TestRowsAreComplete checks each row for what is true of any job: phases in their order, the
// model that the file's head describes, no plan twice.
func TestRowsAreComplete(t *testing.T) {
	for name, least := range rowFiles {
		rows, parameters := readRows(t, name)
		if len(rows) < least {
			t.Errorf("%s has %d rows, not %d", name, len(rows), least)
		}
		seen := map[string]bool{}
		for _, r := range rows {
			if seen[r.plan()] {
				t.Errorf("%s: twice: %s", name, r.plan())
			}
			seen[r.plan()] = true
			if r.NParams != parameters[r.Model] {
				t.Errorf("%s: %s: %d parameters, the head says %d", name, r.plan(), r.NParams, parameters[r.Model])
			}
			held := []int64{0, r.StaticLoad, r.AfterForward, r.PeakBeforeOptim, r.PeakAllocated, r.PeakReserved}
			for i := 1; i < len(held); i++ {
				if held[i] < held[i-1] || held[i] == 0 {
					t.Errorf("%s: %s: instant %d of %v is below the one before", name, r.plan(), i, held)
				}
			}
			if r.Outside < 400<<20 || r.Outside > 4<<30 || r.HostPeak < 1<<30 || r.StepSeconds <= 0 {
				t.Errorf("%s: %s: outside %d, host %d, step %g s", name, r.plan(), r.Outside, r.HostPeak, r.StepSeconds)
			}
		}
	}
}

// TestLargerRowsHoldMore: more samples in a call, or longer ones, hold more if all else is the
// same.
func TestLargerRowsHoldMore(t *testing.T) {
	for name := range rowFiles {
		rows, _ := readRows(t, name)
		compared := 0
		for _, a := range rows {
			for _, b := range rows {
				as := a
				as.Micro, as.Sequence = b.Micro, b.Sequence
				if as.plan() != b.plan() || a.Micro*a.Sequence >= b.Micro*b.Sequence {
					continue
				}
				compared++
				if a.AfterForward >= b.AfterForward || a.PeakAllocated > b.PeakAllocated+b.PeakAllocated/500 {
					t.Errorf("%s: %s holds no less than %s: %d, %d; %d, %d", name, a.plan(), b.plan(), a.AfterForward, b.AfterForward, a.PeakAllocated, b.PeakAllocated)
				}
			}
		}
		if compared == 0 {
			t.Errorf("%s: no two rows differ in their input alone", name)
		}
	}
}

// TestHookHoldsAsMuchAsSwitch: checkpointing by gpurun's own hooks holds as much as the model's
// switch, to a MiB.
func TestHookHoldsAsMuchAsSwitch(t *testing.T) {
	rows, _ := readRows(t, "h200-hooks.jsonl")
	compared := 0
	for _, hook := range rows {
		for _, own := range rows {
			as := hook
			as.By = own.By
			if hook.By != "hook" || own.By != "switch" || as.plan() != own.plan() {
				continue
			}
			compared++
			for i, d := range []int64{hook.AfterForward - own.AfterForward, hook.PeakBeforeOptim - own.PeakBeforeOptim, hook.PeakAllocated - own.PeakAllocated} {
				if d < -1<<20 || d > 1<<20 {
					t.Errorf("%s: instant %d is %d bytes off the model's switch", hook.plan(), i, d)
				}
			}
		}
	}
	if compared < 6 {
		t.Errorf("%d rows have a twin, not 6", compared)
	}
}

// TestStatesFallWithRanks compares DeepSpeed's rows with the law of partition: bytes per
// parameter are whole + shared/ranks, the states of a bf16 model with Adam.
func TestStatesFallWithRanks(t *testing.T) {
	const slack = 0.3 // bytes a parameter: cuBLAS's workspace, a step's own tensors
	buckets := func(r row) float64 {
		if r.Zero == 3 && r.Buckets == "default" {
			return r.perParameter(2 * 5e8) // ZeRO-3 holds a bucket of reduce_bucket_size from the start
		}
		return 0
	}
	compared := map[string]int{}
	rows, _ := readRows(t, "h200-deepspeed.jsonl")
	for _, r := range rows {
		if r.Engine != "deepspeed" || r.OffloadOptimizer != "none" || r.OffloadParam != "none" {
			continue
		}
		n := float64(r.Ranks)
		laws := map[int][2]float64{ // after loading, after the first step
			0: {14, 14},
			1: {2 + 4/n, 2 + 12/n}, 2: {2 + 4/n, 2 + 12/n},
			3: {8 / n, 16 / n},
		}[r.Zero]
		for i, held := range []int64{r.StaticLoad, r.AfterStep1} {
			if off := r.perParameter(held) - laws[i] - buckets(r); math.Abs(off) > slack {
				t.Errorf("%s: instant %d holds %.2f bytes a parameter, not %.2f", r.plan(), i, r.perParameter(held)-buckets(r), laws[i])
			}
		}
		compared[fmt.Sprint(r.Sharding, r.Ranks)]++
	}
	for _, plan := range []string{"ddp1", "zero11", "zero21", "zero31", "ddp2", "zero12", "zero22", "zero32"} {
		if compared[plan] == 0 {
			t.Errorf("no row of %s (sharding, ranks)", plan)
		}
	}
}

// TestSecondStepHoldsMore: Adam's states come with the first step, so a backward pass has its
// true peak in the second: 8/ranks bytes more per parameter. Under ZeRO-3 on several ranks the
// gathered 16-bit weights also stay, 2 more: these models are smaller than
// stage3_max_reuse_distance. No step is below the optimizer's own need.
func TestSecondStepHoldsMore(t *testing.T) {
	rows, _ := readRows(t, "h200-deepspeed.jsonl")
	grown := 0
	for _, r := range rows {
		if r.Engine != "deepspeed" || r.OffloadOptimizer != "none" || r.Zero == 0 {
			continue
		}
		n := float64(r.Ranks)
		step := 2 + 20/n
		if r.Zero == 3 {
			step = 18 / n
		}
		if r.perParameter(r.PeakLater) < step {
			t.Errorf("%s: a later step peaks at %.2f bytes a parameter, the optimizer's step alone takes %.2f", r.plan(), r.perParameter(r.PeakLater), step)
		}
		more := 8 / n
		if r.Zero == 3 && r.Ranks > 1 {
			more += 2
		}
		if got := r.perParameter(r.PeakLater - r.PeakBeforeOptim); r.Micro == 4 && r.Ckpt == "none" && r.Model == "gpt2-medium" {
			grown++
			if math.Abs(got-more) > 0.4 {
				t.Errorf("%s: a later step peaks %.2f bytes a parameter above the first backward pass, not %.2f", r.plan(), got, more)
			}
		}
	}
	if grown < 8 {
		t.Errorf("%d rows are those of a backward pass that decides, not 8", grown)
	}
}

// TestPlainStates compares PyTorch's own data parallelism with its laws, weights in fp32:
// DistributedDataParallel has buckets as large as the gradients in addition to them, and from the
// second step on once more; fully_shard divides everything by the ranks.
func TestPlainStates(t *testing.T) {
	compared := map[string]int{}
	rows, _ := readRows(t, "h200-deepspeed.jsonl")
	for _, r := range rows {
		if r.Engine != "torch" || r.Ranks < 2 {
			continue
		}
		n := float64(r.Ranks)
		laws, more := [4]float64{8, 12, 16, 20}, 8.+4
		if r.Sharding == "fsdp" {
			laws, more = [4]float64{4 / n, 8 / n, 12 / n, 16 / n}, 8/n
		}
		for i, held := range [4]int64{r.StaticLoad, r.BeforeOptim, r.AfterStep1, r.PeakOptim} {
			if off := r.perParameter(held) - laws[i]; math.Abs(off) > 0.3 {
				t.Errorf("%s: instant %d holds %.2f bytes a parameter, not %.2f", r.plan(), i, r.perParameter(held), laws[i])
			}
		}
		if got := r.perParameter(r.PeakLater - r.PeakBeforeOptim); math.Abs(got-more) > 0.3 {
			t.Errorf("%s: a later step peaks %.2f bytes a parameter above the first backward pass, not %.2f", r.plan(), got, more)
		}
		compared[r.Sharding]++
	}
	if compared["ddp"] < 2 || compared["fsdp"] < 2 {
		t.Errorf("two rows each of DDP and fully_shard were measured, not %v", compared)
	}
}

// TestOffloadFreesDeviceMemory: ZeRO-3 keeps its bucket on the device, and the weights if they
// are not offloaded. In the backward pass they are gathered, so its peak is the same for any
// share of offload. ZeRO-1 and 2 keep weights and a buffer for the largest gradient, for any
// number of ranks.
func TestOffloadFreesDeviceMemory(t *testing.T) {
	const largest = 51463168
	compared, peaks := 0, map[bool]float64{}
	rows, _ := readRows(t, "h200-deepspeed.jsonl")
	for _, r := range rows {
		if r.OffloadOptimizer == "none" || r.Model != "gpt2-medium" || r.Micro*r.Accum > 1 {
			continue
		}
		compared++
		left := 2 + r.perParameter(2*largest)
		if r.Zero == 3 {
			left = r.perParameter(2 * 5e8)
			if r.OffloadParam == "none" {
				left += 2 / float64(r.Ranks)
			}
		}
		if off := r.perParameter(r.StaticLoad) - left; math.Abs(off) > 0.05 {
			t.Errorf("%s: %.2f bytes a parameter are held when loaded, not %.2f", r.plan(), r.perParameter(r.StaticLoad), left)
		}
		peak, seen := peaks[r.Zero == 3]
		if !seen {
			peak = float64(r.PeakLater)
		}
		peaks[r.Zero == 3] = peak
		if math.Abs(float64(r.PeakLater)/peak-1) > 0.001 {
			t.Errorf("%s: a later step peaks at %d, other rows at %.0f", r.plan(), r.PeakLater, peak)
		}
	}
	if compared < 7 {
		t.Errorf("%d rows with offload, not 7", compared)
	}
}
