package memory

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// A pricedRow is a measured plan, with the keys that distinguish prices.
type pricedRow struct {
	Model            string  `json:"model"`
	Micro            int     `json:"micro"`
	Accum            int     `json:"accum"`
	Params           any     `json:"params"` // the dtype that they are held in; a number in the line of a model
	Amp              string  `json:"amp"`
	Ckpt             string  `json:"ckpt"`
	By               string  `json:"by"`
	Optim            string  `json:"optim"`
	Attn             string  `json:"attn"`
	Engine           string  `json:"engine"`
	Sharding         string  `json:"sharding"`
	Buckets          string  `json:"buckets"`
	OffloadOptimizer string  `json:"offload_optimizer"`
	OffloadParam     string  `json:"offload_param"`
	Ranks            int     `json:"ranks"`
	Peak             int64   `json:"peak_allocated"`
	Seconds          float64 `json:"step_s"`
}

// key is a row's plan without the measurements.
func (r pricedRow) key() pricedRow {
	r.Peak, r.Seconds = 0, 0
	return r
}

func pricedRows(t *testing.T, path string) []pricedRow {
	t.Helper()
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	var all []pricedRow
	for lines := bufio.NewScanner(file); lines.Scan(); {
		var r pricedRow
		if err := json.Unmarshal(lines.Bytes(), &r); err != nil {
			t.Fatal(err)
		}
		if r.Micro > 0 && r.Peak > 0 { // otherwise a model, or a plan that ran out of memory
			all = append(all, r)
		}
	}
	return all
}

// A priceChange is a change of one setting, from rows before it to rows after it.
type priceChange struct {
	words string
	from  func(pricedRow) bool
	to    func(pricedRow) pricedRow
	timed bool
}

// priceTable has a line for each change and model, at the largest batch that was measured for
// both.
func priceTable(rows []pricedRow, changes []priceChange) string {
	var b strings.Builder
	b.WriteString("| change | job | batch | GiB before | after | saved | step time |\n|---|---|--:|--:|--:|--:|--:|\n")
	for _, c := range changes {
		var models []string
		for _, r := range rows {
			if !slices.Contains(models, r.Model) {
				models = append(models, r.Model)
			}
		}
		for _, model := range models {
			before, after, ok := largestPair(rows, model, c)
			if !ok {
				continue
			}
			times := "–"
			if c.timed {
				times = fmt.Sprintf("× %.2f", after.Seconds/before.Seconds)
			}
			fmt.Fprintf(&b, "| %s | %s | %d×%d | %s | %s | %d %% | %s |\n", c.words, model, before.Micro, before.Accum,
				gib1(before.Peak), gib1(after.Peak), percent(before.Peak, after.Peak), times)
		}
	}
	return b.String()
}

// largestPair returns the rows before and after a change with the largest batch.
func largestPair(rows []pricedRow, model string, c priceChange) (before, after pricedRow, ok bool) {
	for _, r := range rows {
		if r.Model != model || !c.from(r) || ok && r.Micro <= before.Micro {
			continue
		}
		want := c.to(r.key())
		if i := slices.IndexFunc(rows, func(o pricedRow) bool { return o.key() == want }); i >= 0 {
			before, after, ok = r, rows[i], true
		}
	}
	return before, after, ok
}

func gib1(n int64) string { return fmt.Sprintf("%.1f", float64(n)/(1<<30)) }

func percent(before, after int64) int {
	return int(100*(1-float64(after)/float64(before))+100.5) - 100
}

// plainChanges are the changes on one GPU, of one setting each.
var plainChanges = []priceChange{
	{"checkpointing none→full", func(r pricedRow) bool { return usual(r) && r.Amp == "bf16" && r.Accum == 1 }, func(r pricedRow) pricedRow { r.Ckpt = "full"; return r }, true},
	{"micro batch halved, accumulation doubled", func(r pricedRow) bool { return usual(r) && r.Amp == "bf16" && r.Accum == 1 }, func(r pricedRow) pricedRow {
		r.Micro, r.Accum = r.Micro/2, r.Accum*2
		return r
	}, true},
	{"precision fp32→bf16 (autocast)", func(r pricedRow) bool { return usual(r) && r.Amp == "off" && r.Accum == 1 }, func(r pricedRow) pricedRow { r.Amp = "bf16"; return r }, true},
	{"attention eager→sdpa", func(r pricedRow) bool {
		return r.Attn == "eager" && r.Ckpt == "none" && r.Amp == "bf16" && r.Optim == "adamw"
	}, func(r pricedRow) pricedRow { r.Attn = "sdpa"; return r }, true},
	{"optimizer adamw→adafactor", func(r pricedRow) bool { return usual(r) && r.Amp == "bf16" && r.Accum == 1 }, func(r pricedRow) pricedRow { r.Optim = "adafactor"; return r }, true},
}

// usual is a plan without checkpointing, as most jobs are written.
func usual(r pricedRow) bool { return r.Ckpt == "none" && r.Attn == "sdpa" && r.Optim == "adamw" }

// shardedRow reports whether a row is a plan of DeepSpeed with default buckets.
func shardedRow(r pricedRow, sharding string, ranks int) bool {
	return r.Engine == "deepspeed" && r.Sharding == sharding && r.Ranks == ranks && r.Buckets == "default" && r.Ckpt == "none" && r.Accum == 1 &&
		r.OffloadOptimizer == "none" && r.OffloadParam == "none"
}

func toSharding(to string) func(pricedRow) pricedRow {
	return func(r pricedRow) pricedRow { r.Sharding = to; return r }
}

func toHost(optimizer, param string) func(pricedRow) pricedRow {
	return func(r pricedRow) pricedRow {
		r.OffloadOptimizer, r.OffloadParam = optimizer, param
		r.Optim = "cpu_adam"
		return r
	}
}

// shardedChanges are the changes of DeepSpeed and of fully_shard; their rows shared the machine,
// so their times are not reliable.
var shardedChanges = []priceChange{
	{"none→ZeRO-1, two GPUs", func(r pricedRow) bool { return shardedRow(r, "ddp", 2) }, toSharding("zero1"), false},
	{"none→ZeRO-2, two GPUs", func(r pricedRow) bool { return shardedRow(r, "ddp", 2) }, toSharding("zero2"), false},
	{"none→ZeRO-3, two GPUs", func(r pricedRow) bool { return shardedRow(r, "ddp", 2) }, toSharding("zero3"), false},
	{"DDP→FSDP, two GPUs", func(r pricedRow) bool { return r.Engine == "torch" && r.Sharding == "ddp" }, toSharding("fsdp"), false},
	{"ZeRO-2, optimizer to the host, one GPU", func(r pricedRow) bool { return shardedRow(r, "zero2", 1) }, toHost("cpu", "none"), false},
	{"ZeRO-3, everything to the host, one GPU", func(r pricedRow) bool { return shardedRow(r, "zero3", 1) }, toHost("cpu", "cpu"), false},
	{"ZeRO-3, everything to NVMe, one GPU", func(r pricedRow) bool { return shardedRow(r, "zero3", 1) }, toHost("nvme", "nvme"), false},
}

// jobTable is the checkpointing of whole jobs, from the table of docs/rescues.md.
func jobTable(t *testing.T, rescues string) string {
	t.Helper()
	row := regexp.MustCompile(`(?m)^\| ([^|]+) \| ([\d.]+), ([\d.]+) \| [^|]+ \| ([\d.]+), ([\d.]+) \|`)
	var b strings.Builder
	b.WriteString("| job | GiB before | after | saved | step time |\n|---|--:|--:|--:|--:|\n")
	for _, m := range row.FindAllStringSubmatch(rescues, -1) {
		var n [4]float64
		for i, word := range m[2:] {
			var err error
			if n[i], err = strconv.ParseFloat(word, 64); err != nil {
				t.Fatal(err)
			}
		}
		const unit = 1 << 30
		fmt.Fprintf(&b, "| %s | %.1f | %.1f | %d %% | × %.2f |\n", m[1], n[0], n[2], percent(int64(n[0]*unit), int64(n[2]*unit)), n[3]/n[1])
	}
	return b.String()
}

// The page of prices has the measured figures. UPDATE=1 writes them into it.
func TestPricesPage(t *testing.T) {
	const path = "../../docs/prices.md"
	read := func(path string) string {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	page, tables := read(path), map[string]string{
		"jobs":    jobTable(t, read("../../docs/rescues.md")),
		"plain":   priceTable(pricedRows(t, landscapeFile), plainChanges),
		"sharded": priceTable(pricedRows(t, "testdata/h200-deepspeed.jsonl"), shardedChanges),
	}
	want := page
	for name, table := range tables {
		if lines := strings.Count(table, "\n"); lines < 8 {
			t.Errorf("%s has %d lines only:\n%s", name, lines, table)
		}
		part := regexp.MustCompile(`(?s)(<!-- ` + name + ` -->\n).*?(<!-- end -->)`)
		if !part.MatchString(want) {
			t.Fatalf("the page has no place for the table %s", name)
		}
		want = part.ReplaceAllStringFunc(want, func(old string) string {
			m := part.FindStringSubmatch(old)
			return m[1] + table + m[2]
		})
	}
	if want == page {
		return
	}
	if os.Getenv("UPDATE") == "" {
		t.Fatal("docs/prices.md has other figures than were measured: UPDATE=1 go test ./strategy/memory -run Prices")
	}
	if err := os.WriteFile(path, []byte(want), 0o644); err != nil {
		t.Fatal(err)
	}
}
