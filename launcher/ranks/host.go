package ranks

import (
	"fmt"
	"io/fs"
	"iter"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gpurun/gpurun/launcher/system"
	"github.com/gpurun/gpurun/strategy"
)

// This file and disk.go measure the node's own memory and disks: RAM, the limits that
// control groups put on it, the kernel's counts of processes that the OOM killer
// ended, shared memory, and file systems.

// A Machine is read through a file system whose root is "/", which a test can replace.
type Machine struct{ root fs.FS }

// ThisMachine is the machine that gpurun runs on.
func ThisMachine() Machine { return Machine{os.DirFS("/")} }

// MachineAt is a machine whose /proc and /sys lie below root.
func MachineAt(root fs.FS) Machine { return Machine{root} }

// A RAM is the memory of a machine as this process may use it. All figures are bytes.
type RAM struct {
	Total int64 // of the machine
	// Available is the memory that can still be allocated without swapping and without an OOM kill: the least
	// of the kernel's MemAvailable and the rest in each control group above this process.
	Available int64
	// Limit is the lowest limit of the control groups above us, 0 for none, the
	// point where version 2 begins to stall included. It may exceed Total.
	Limit int64
	// Group is the control group that sets Limit.
	Group string
}

// Whole is all of the machine's memory, or what a control group allows, in bytes, however much is
// in use.
func (m RAM) Whole() int64 {
	if m.Limit > 0 {
		return min(m.Total, m.Limit)
	}
	return m.Total
}

// Memory measures the machine. An error means that /proc/meminfo cannot be read;
// control groups that cannot be read do not limit.
func (m Machine) Memory() (RAM, error) {
	total, available, err := m.meminfo()
	if err != nil {
		return RAM{}, fmt.Errorf("measure memory: %w", err)
	}
	memory := RAM{Total: total, Available: available}
	for _, g := range m.groups() {
		limit := g.ceiling()
		if limit == 0 {
			continue
		}
		if memory.Limit == 0 || limit < memory.Limit {
			memory.Limit, memory.Group = limit, g.name()
		}
		if used, ok := g.working(); ok {
			memory.Available = min(memory.Available, max(limit-used, 0))
		}
	}
	return memory, nil
}

func (m Machine) meminfo() (total, available int64, err error) {
	text, err := fs.ReadFile(m.root, "proc/meminfo")
	if err != nil {
		return 0, 0, err
	}
	fields := system.ProcFields(text)
	total, available = system.ProcBytes(fields["MemTotal"]), system.ProcBytes(fields["MemAvailable"])
	if total == 0 {
		return 0, 0, fmt.Errorf("proc/meminfo has no MemTotal: %w", fs.ErrInvalid)
	}
	return total, available, nil
}

// Counters remember how many processes the OOM killer had ended when they were
// opened, at every level that can be read.
type Counters struct {
	levels []cgroup
	before []int64
}

// OpenCounters reads the counters before the ranks start: later, a kill cannot be distinguished
// from older ones.
func (m Machine) OpenCounters() *Counters {
	c := &Counters{}
	for _, g := range m.groups() {
		if n, ok := g.kills(); ok {
			c.levels = append(c.levels, g)
			c.before = append(c.before, n)
		}
	}
	return c
}

// Rise returns a fact for each level whose counter has risen since OpenCounters, the innermost
// first: the nearer the level, the likelier the killed processes are ours. No kill is in two
// facts, so that their sum is the number of killed processes. The limit is the lowest one of that
// level and those above, and the peak that of the level with the limit, since that level was
// made; it can be a few pages above the limit, which the kernel lets usage exceed for a moment
// (https://docs.kernel.org/admin-guide/cgroup-v2.html, memory.max). Where no counter can be read
// there is one gap.
func (c *Counters) Rise() []strategy.Fact {
	if len(c.levels) == 0 {
		return []strategy.Fact{oomKillFact(strategy.Fact{
			Content: strategy.Gap("no cgroup with a readable count of OOM kills"),
		})}
	}
	var facts []strategy.Fact
	var below int64 // counted by inner levels
	for i, g := range c.levels {
		now, ok := g.kills()
		if !ok {
			continue
		}
		rise := now - c.before[i]
		if g.files.nested {
			rise, below = rise-below, max(rise, below)
		}
		if rise <= 0 {
			continue
		}
		kills := &strategy.Kills{Count: rise, Group: g.name()}
		kills.Limit, kills.Peak = tightest(c.levels[i:])
		facts = append(facts, oomKillFact(strategy.Fact{Content: kills}))
	}
	return facts
}

// tightest returns the lowest limit among levels and the peak of the level that
// has it, or of the first level if none has a limit.
func tightest(levels []cgroup) (limit, peak int64) {
	peak = levels[0].peak()
	for _, g := range levels {
		if n := g.limit(); n > 0 && (limit == 0 || n < limit) {
			limit, peak = n, g.peak()
		}
	}
	return limit, peak
}

// oomKillFact fills in who observed it, and when.
func oomKillFact(f strategy.Fact) strategy.Fact {
	f.Time, f.Rank, f.Source = time.Now(), -1, "cgroup"
	return f
}

// cgroup is one level of the control groups above this process that account for
// memory.
type cgroup struct {
	root  fs.FS
	dir   string // without the leading slash
	files cgroupFiles
}

// cgroupFiles are the names of one version of the kernel's interface:
// https://docs.kernel.org/admin-guide/cgroup-v1/memory.html and
// https://docs.kernel.org/admin-guide/cgroup-v2.html.
type cgroupFiles struct {
	limit    string // beyond it the kernel kills
	throttle string // beyond it the kernel stalls every allocation
	usage    string
	peak     string
	events   string
	inactive string // in memory.stat: page cache that goes first under pressure
	// nested: a level's events count those of the levels below it.
	nested bool
}

var (
	filesV1 = cgroupFiles{
		limit: "memory.limit_in_bytes",
		usage: "memory.usage_in_bytes", peak: "memory.max_usage_in_bytes",
		events: "memory.oom_control", inactive: "total_inactive_file",
	}
	filesV2 = cgroupFiles{
		limit: "memory.max", throttle: "memory.high",
		usage: "memory.current", peak: "memory.peak",
		events: "memory.events", inactive: "inactive_file", nested: true,
	}
)

// unlimited is the least number that means no limit in version 1: the greatest whole number of
// pages, with pages of up to 64 KiB.
const unlimited = 1<<63 - 1<<16

// name is the level's path for people.
func (g cgroup) name() string { return "/" + g.dir }

// limit returns the memory in bytes above which the kernel kills processes of this level, 0 for no limit.
func (g cgroup) limit() int64 {
	n, ok := g.number(g.files.limit) // "max" is no number
	if !ok || n >= unlimited {
		return 0
	}
	return n
}

// ceiling returns the memory in bytes up to which this level runs at full speed, 0 for no limit.
func (g cgroup) ceiling() int64 {
	limit := g.limit()
	if g.files.throttle == "" {
		return limit
	}
	n, ok := g.number(g.files.throttle)
	if ok && (limit == 0 || n < limit) {
		return n
	}
	return limit
}

// peak is the most that this level ever held, in bytes, 0 if unknown.
func (g cgroup) peak() int64 {
	n, _ := g.number(g.files.peak)
	return n
}

// working returns the memory in bytes that this level uses and cannot free at once.
func (g cgroup) working() (int64, bool) {
	used, ok := g.number(g.files.usage)
	if !ok {
		return 0, false
	}
	stat, _ := g.fields("memory.stat")
	return max(used-stat[g.files.inactive], 0), true
}

// kills counts the processes of this level, or below it where the interface
// nests, that the OOM killer ended since the level was made.
func (g cgroup) kills() (int64, bool) {
	events, ok := g.fields(g.files.events)
	count, counted := events["oom_kill"]
	// The kernel counts a killed group once here and each of its processes above;
	// some report only the former.
	return max(count, events["oom_group_kill"]), ok && counted
}

func (g cgroup) number(file string) (int64, bool) {
	text, err := fs.ReadFile(g.root, path.Join(g.dir, file))
	if err != nil {
		return 0, false
	}
	n, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
	return n, err == nil && n >= 0
}

// fields reads lines of the form "oom_kill 3".
func (g cgroup) fields(file string) (map[string]int64, bool) {
	text, err := fs.ReadFile(g.root, path.Join(g.dir, file))
	if err != nil {
		return nil, false
	}
	fields := map[string]int64{}
	for line := range strings.Lines(string(text)) {
		words := strings.Fields(line)
		if len(words) != 2 {
			continue
		}
		if n, err := strconv.ParseInt(words[1], 10, 64); err == nil {
			fields[words[0]] = n
		}
	}
	return fields, true
}

// groups lists the levels above this process, innermost first, up to the mount. Machines that
// mount both versions account for memory in one of them; levels without a memory controller are
// omitted.
func (m Machine) groups() []cgroup {
	var levels []cgroup
	for version, files := range []cgroupFiles{1: filesV1, 2: filesV2} {
		for _, dir := range m.folders("memory", version, files.events) {
			levels = append(levels, cgroup{root: m.root, dir: dir, files: files})
		}
	}
	return levels
}

// folders lists the levels above this process, innermost first, that a controller has
// in a version of the interface: those in which it keeps a file of that name.
func (m Machine) folders(controller string, version int, file string) []string {
	self, member := m.membership(controller)[version]
	if !member {
		return nil
	}
	return slices.DeleteFunc(m.levels(m.groupMounts(controller)[version], self), func(dir string) bool {
		_, err := fs.Stat(m.root, path.Join(dir, file))
		return err != nil
	})
}

// membership reads the path of this process's group in each version, as far as the
// controller is there.
func (m Machine) membership(controller string) map[int]string {
	text, err := fs.ReadFile(m.root, "proc/self/cgroup")
	if err != nil {
		return nil
	}
	paths := map[int]string{}
	for line := range strings.Lines(string(text)) {
		parts := strings.SplitN(strings.TrimSuffix(line, "\n"), ":", 3)
		if len(parts) != 3 {
			continue
		}
		switch {
		case parts[0] == "0" && parts[1] == "":
			paths[2] = parts[2]
		case slices.Contains(strings.Split(parts[1], ","), controller):
			paths[1] = parts[2]
		}
	}
	return paths
}

// cgroupMount is where a hierarchy is mounted.
type cgroupMount struct {
	point string // where, without the leading slash
	top   string // the group that is seen there
}

// mounts yields the mounts of this process, the fields before and after the dash. A line of
// mountinfo is: id parent dev root point options [tag …] - type source superoptions
// (proc_pid_mountinfo(5)).
func (m Machine) mounts() iter.Seq2[[]string, []string] {
	return func(yield func(place, system []string) bool) {
		text, _ := fs.ReadFile(m.root, "proc/self/mountinfo") // a machine without the file has no mounts here
		for line := range strings.Lines(string(text)) {
			left, right, found := strings.Cut(strings.TrimSpace(line), " - ")
			place, system := strings.Fields(left), strings.Fields(right)
			if found && len(place) > 5 && len(system) > 2 && !yield(place, system) {
				return
			}
		}
	}
}

// groupMounts finds the hierarchies that a controller can be in, by version.
func (m Machine) groupMounts(controller string) map[int][]cgroupMount {
	mounts := map[int][]cgroupMount{}
	for place, system := range m.mounts() {
		if !strings.HasPrefix(system[0], "cgroup") {
			continue
		}
		mount := cgroupMount{
			point: strings.TrimPrefix(unescape(place[4]), "/"),
			top:   unescape(place[3]),
		}
		switch {
		case system[0] == "cgroup2":
			mounts[2] = append(mounts[2], mount)
		case system[0] == "cgroup" && slices.Contains(strings.Split(system[2], ","), controller):
			mounts[1] = append(mounts[1], mount)
		}
	}
	return mounts
}

// unescape undoes the octal escapes of mountinfo.
func unescape(s string) string {
	return strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`).Replace(s)
}

// levels lists the folders from a group up to the mount where it is found. In a container the
// group's path is often that of the host and not found; then the mount itself is our group.
func (m Machine) levels(mounts []cgroupMount, self string) []string {
	for _, mount := range mounts {
		below, ok := within(mount.top, self)
		if !ok {
			continue
		}
		dir := path.Join(mount.point, below)
		if info, err := fs.Stat(m.root, dir); err != nil || !info.IsDir() {
			continue
		}
		var dirs []string
		for ; dir != mount.point; dir = path.Dir(dir) {
			dirs = append(dirs, dir)
		}
		return append(dirs, mount.point)
	}
	if len(mounts) > 0 {
		return []string{mounts[0].point}
	}
	return nil
}

// within returns a group's path as seen from the group at the top of a mount.
func within(top, self string) (string, bool) {
	if top == "/" {
		return strings.TrimPrefix(path.Clean(self), "/"), !strings.Contains(self, "..")
	}
	if self == top {
		return "", true
	}
	return strings.CutPrefix(self, top+"/")
}

// Processes are what the control groups above us allow of processes and threads
// together, which the kernel counts alike.
type Processes struct {
	Limit int64 // the lowest, 0 for none
	Used  int64 // in the group that has it
	Group string
}

// Processes reads the limit that leaves the least room. Control groups that cannot be
// read do not limit.
func (m Machine) Processes() Processes {
	var tight Processes
	for version := 1; version <= 2; version++ {
		for _, dir := range m.folders("pids", version, "pids.max") {
			g := cgroup{root: m.root, dir: dir}
			limit, limited := g.number("pids.max") // "max" is no number
			used, _ := g.number("pids.current")
			if limited && (tight.Limit == 0 || limit-used < tight.Limit-tight.Used) {
				tight = Processes{Limit: limit, Used: used, Group: g.name()}
			}
		}
	}
	return tight
}
