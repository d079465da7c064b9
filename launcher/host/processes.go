package host

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
