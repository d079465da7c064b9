package strategy

import (
	"cmp"
	"encoding/json"
	"reflect"
	"strings"

	"github.com/gpurun/gpurun/strategy/cause"
	"github.com/gpurun/gpurun/strategy/memory"
)

// A Content is what a fact reports.
type Content interface {
	// fold adds fact i, which has this content, to the state of the attempt. It returns the index of the earlier fact
	// that this one replaces, or first.
	fold(c *fold, f *Fact, i int) (earlier int)
}

// first: a fact replaces no other.
const first = -1

// Contents whose types other packages declare, and those that are no structs.
type (
	Finding cause.Finding
	// Growth is memory use that rose up to the end of the rank's output. Growth before an error is in its Finding.
	Growth      cause.Growth
	DriverEvent cause.DriverEvent // about a device of the job
	Measurement memory.Measurement
	// Nodes are the hosts of the attempt by node number, if there are several.
	Nodes []string
	// Gap names something that could not be observed: "no NVML on node 3".
	Gap string
)

// contents has a value of each kind of content, by the name of its field in JSON.
var contents = []struct {
	key string
	of  Content
	in  any // a value of the type that other packages declare; nil: none
}{
	{"finding", (*Finding)(nil), (*cause.Finding)(nil)},
	{"exit", (*Exit)(nil), nil},
	{"progress", (*Progress)(nil), nil},
	{"kills", (*Kills)(nil), nil},
	{"tenant", (*Tenant)(nil), nil},
	{"stuck", (*Stuck)(nil), nil},
	{"growth", (*Growth)(nil), (*cause.Growth)(nil)},
	{"driver_event", (*DriverEvent)(nil), (*cause.DriverEvent)(nil)},
	{"observed", (*ObservedSetting)(nil), nil},
	{"said", (*ProcessReport)(nil), nil},
	{"process_end", (*ProcessEnd)(nil), nil},
	{"asking", (*Asking)(nil), nil},
	{"memory", (*Measurement)(nil), (*memory.Measurement)(nil)},
	{"snapshot", (*Snapshot)(nil), nil},
	{"sign", (*Sign)(nil), nil},
	{"stall", (*Stall)(nil), nil},
	{"stack", (*Stack)(nil), nil},
	{"file_system", (*FileSystem)(nil), nil},
	{"nodes", Nodes(nil), nil},
	{"lost", (*Lost)(nil), nil},
	{"gap", Gap(""), nil},
}

func (*Finding) fold(c *fold, f *Fact, i int) int {
	id := identityOf(f)
	if at, again := c.known[id]; again && id.seq > 0 {
		c.findings[at].finding = f.Finding()
		return c.findings[at].fact
	}
	c.known[id] = len(c.findings)
	c.findings = append(c.findings, found{fact: i, rank: rankOf(f), finding: f.Finding()})
	return first
}

func (*DriverEvent) fold(c *fold, f *Fact, i int) int {
	if finding, ok := f.DriverEvent().Finding(); ok {
		c.findings = append(c.findings, found{fact: i, rank: f.Rank, finding: &finding})
	}
	return first
}

func (l *Lost) fold(c *fold, _ *Fact, i int) int {
	c.findings = append(c.findings, found{fact: i, rank: -1, finding: l.finding()})
	return collect(&c.lost, i)
}

func (k *Kills) fold(c *fold, _ *Fact, i int) int {
	if k.Count <= 0 {
		return first
	}
	return collect(&c.kills, i)
}

func (p *Progress) fold(c *fold, f *Fact, i int) int {
	c.steps = max(c.steps, p.Steps)
	return replace(c.progress, f.Rank, i)
}

// fold keeps the first value of a knob: a framework that changes it later, on its own, starts with the given value.
func (s *ObservedSetting) fold(c *fold, _ *Fact, _ int) int {
	c.fresh = c.fresh || s.Fresh
	if s.Nothing {
		c.nothing = s.Text
	}
	if _, known := c.observed[s.Knob]; s.Knob != "" && !known {
		c.observed = c.observed.With(Plan{s.Knob: s.Value})
	}
	return first
}

func (*Stack) fold(c *fold, f *Fact, i int) int {
	if _, known := c.stacks[f.Rank]; !known {
		c.stacks[f.Rank] = i
	}
	return first
}

func (s *FileSystem) fold(c *fold, _ *Fact, _ int) int {
	c.fileSystems = append(c.fileSystems, s)
	return first
}

func (n Nodes) fold(c *fold, _ *Fact, _ int) int {
	c.nodes = n
	return first
}

func (*Exit) fold(c *fold, f *Fact, i int) int {
	c.exits[f.Rank] = i
	return first
}

func (*Growth) fold(c *fold, f *Fact, i int) int {
	c.growth[f.Rank] = i
	return first
}

func (*Sign) fold(c *fold, f *Fact, i int) int     { return replace(c.signs, f.Rank, i) }
func (*Snapshot) fold(c *fold, f *Fact, i int) int { return replace(c.snapshots, f.Rank, i) }
func (r *ProcessReport) fold(c *fold, f *Fact, i int) int {
	return replace(c.reported, processID{f.Rank, r.PID}, i)
}
func (m *Measurement) fold(c *fold, f *Fact, i int) int {
	return replace(c.measured, processID{f.Rank, m.PID}, i)
}

func (*Tenant) fold(c *fold, _ *Fact, i int) int     { return collect(&c.tenants, i) }
func (*Stuck) fold(c *fold, _ *Fact, i int) int      { return collect(&c.stuck, i) }
func (*ProcessEnd) fold(c *fold, _ *Fact, i int) int { return collect(&c.processEnds, i) }
func (Gap) fold(c *fold, _ *Fact, i int) int         { return collect(&c.gaps, i) }

func (*Stall) fold(*fold, *Fact, int) int  { return first }
func (*Asking) fold(*fold, *Fact, int) int { return first }

// replace makes a fact the only one of its key, and returns the one that was.
func replace[K comparable](facts map[K]int, key K, i int) (earlier int) {
	earlier, known := facts[key]
	facts[key] = i
	if !known {
		return first
	}
	return earlier
}

// collect keeps a fact beside the others of its kind.
func collect(facts *[]int, i int) (earlier int) {
	*facts = append(*facts, i)
	return first
}

// As returns a fact's content if it is of a kind, else the zero value.
func As[C Content](f Fact) C {
	content, _ := f.Content.(C)
	return content
}

// Finding is the fact's finding; nil: it has another content. The next four are alike.
func (f Fact) Finding() *cause.Finding         { return (*cause.Finding)(As[*Finding](f)) }
func (f Fact) Exit() *Exit                     { return As[*Exit](f) }
func (f Fact) Growth() *cause.Growth           { return (*cause.Growth)(As[*Growth](f)) }
func (f Fact) DriverEvent() *cause.DriverEvent { return (*cause.DriverEvent)(As[*DriverEvent](f)) }
func (f Fact) Memory() *memory.Measurement     { return (*memory.Measurement)(As[*Measurement](f)) }

// FactJSON is the type of a fact in JSON: its common fields, and one for each kind of content.
var FactJSON = func() reflect.Type {
	fields := reflect.VisibleFields(reflect.TypeFor[Fact]())
	fields = fields[:len(fields)-1] // without Content
	for _, kind := range contents {
		of := cmp.Or(reflect.TypeOf(kind.in), reflect.TypeOf(kind.of))
		tag := reflect.StructTag(`json:"` + kind.key + `,omitempty"`)
		fields = append(fields, reflect.StructField{Name: strings.ToUpper(kind.key), Type: of, Tag: tag})
	}
	return reflect.StructOf(fields)
}()

// MarshalJSON writes the content under the name of its kind.
func (f Fact) MarshalJSON() ([]byte, error) {
	fields, from := reflect.New(FactJSON).Elem(), reflect.ValueOf(f)
	common := from.NumField() - 1
	for i := range common {
		fields.Field(i).Set(from.Field(i))
	}
	for i, kind := range contents {
		if reflect.TypeOf(f.Content) == reflect.TypeOf(kind.of) {
			field := fields.Field(common + i)
			field.Set(reflect.ValueOf(f.Content).Convert(field.Type()))
		}
	}
	return json.Marshal(fields.Interface())
}

// UnmarshalJSON reads what MarshalJSON wrote. A content of a kind that this version does not know is left out.
func (f *Fact) UnmarshalJSON(text []byte) error {
	read, to := reflect.New(FactJSON), reflect.ValueOf(f).Elem()
	if err := json.Unmarshal(text, read.Interface()); err != nil {
		return err
	}
	common := to.NumField() - 1
	for i := range common {
		to.Field(i).Set(read.Elem().Field(i))
	}
	f.Content = nil
	for i, kind := range contents {
		if field := read.Elem().Field(common + i); !field.IsZero() {
			f.Content = field.Convert(reflect.TypeOf(kind.of)).Interface().(Content)
		}
	}
	return nil
}
