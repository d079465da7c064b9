package memory

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"testing"
)

// landscapeFile has the project's own measured plans: five models on an H200.
const landscapeFile = "testdata/landscape.jsonl"

// A head line of a landscape has the fixed properties of a model.
type head struct {
	Model    string  `json:"model"`
	Blocks   int     `json:"blocks"`
	Params   int64   `json:"params"`
	Outside  int64   `json:"params_outside_blocks"`
	Hidden   int64   `json:"hidden"`
	Sequence int64   `json:"sequence"`
	Vocab    int64   `json:"vocab"`
	Input    float64 `json:"x_bytes_per_sample"`
	Conv     bool    `json:"conv"`
}

// A setting is a row's plan without its batches; as a key it finds rows.
type setting struct {
	Micro  int    `json:"micro"`
	Accum  int    `json:"accum"`
	Params string `json:"params"`
	Amp    string `json:"amp"`
	Ckpt   string `json:"ckpt"`
	Optim  string `json:"optim"`
	Attn   string `json:"attn"`
}

// A row is a measured plan.
type row struct {
	setting
	Static  int64   `json:"static_load"`
	Forward int64   `json:"after_forward"`
	Before  int64   `json:"peak_before_optim"`
	Step1   int64   `json:"after_step1"`
	Peak    int64   `json:"peak_allocated"`
	StepS   float64 `json:"step_s"`
	Samples float64 `json:"samples_per_s"`
	Launch  struct {
		Cold     float64 `json:"cold_s"`
		Forward  float64 `json:"forward_s"`
		Backward float64 `json:"backward_s"`
	} `json:"launch"`
}

// A landscape is one model's rows.
type landscape struct {
	head head
	rows map[setting]row
}

// readLandscape reads a file of measured plans, by model in the order of their heads.
func readLandscape(t testing.TB, path string) []*landscape {
	t.Helper()
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	var all []*landscape
	byModel := map[string]*landscape{}
	lines := bufio.NewScanner(file)
	lines.Buffer(nil, 1<<20)
	for n := 1; lines.Scan(); n++ {
		var line struct {
			head
			row
			Params json.RawMessage `json:"params"` // a number in a head, a dtype in a row
			Engine string          `json:"engine"`
			Zero   int             `json:"zero"`
			Ranks  int             `json:"ranks"`
		}
		if err := json.Unmarshal(lines.Bytes(), &line); err != nil {
			t.Fatalf("%s:%d: %v", path, n, err)
		}
		l := byModel[line.Model]
		if line.Micro == 0 {
			if l == nil {
				l = &landscape{head: line.head, rows: map[setting]row{}}
				byModel[line.Model] = l
				all = append(all, l)
			}
			if err := json.Unmarshal(line.Params, &l.head.Params); err != nil {
				t.Fatalf("%s:%d: %v", path, n, err)
			}
			continue
		}
		if l == nil {
			t.Fatalf("%s:%d: a row of %q before its head", path, n, line.Model)
		}
		if line.Engine == "deepspeed" || line.Zero > 0 || line.Ranks > 1 {
			continue // its states are not the plain job's
		}
		if err := json.Unmarshal(line.Params, &line.row.Params); err != nil {
			t.Fatalf("%s:%d: %v", path, n, err)
		}
		if line.Peak > 0 && line.Samples > 0 {
			l.rows[line.setting] = line.row
		}
	}
	if err := lines.Err(); err != nil {
		t.Fatal(fmt.Errorf("reading %s: %w", path, err))
	}
	return all
}

// row is the measured plan for a number of micro batches per step: one row is for one, and
// another, of two, for all larger numbers.
func (l *landscape) row(s setting, accum int) (row, bool) {
	s.Accum = min(accum, 2)
	r, ok := l.rows[s]
	return r, ok
}

// plan is a row's plan in the planner's terms.
func (s setting) plan(accum int) RankPlan {
	p := RankPlan{MicroBatch: s.Micro, Accumulation: accum, Weights: s.Params, Compute: s.Params, Checkpointing: s.Ckpt,
		Attention: s.Attn, Optimizer: s.Optim, Allocator: "expandable", DataParallel: 1, Sharding: "none"}
	if s.Amp != "off" {
		p.Compute = s.Amp
	}
	return p
}
