package job

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/gpurun/gpurun/launcher/commandline"
	"github.com/gpurun/gpurun/launcher/errext"
	"github.com/gpurun/gpurun/launcher/lazy"
	"github.com/gpurun/gpurun/recipes"
	"github.com/gpurun/gpurun/recipes/format"
	"github.com/gpurun/gpurun/strategy"
)

// readJob reads [job]: the command and where it runs.
func (r *reader) readJob() {
	t, j := r.table("job"), r.job
	j.Name = t.Text("name", strings.TrimSuffix(filepath.Base(j.Path), ".toml"))
	if why := badName(j.Name); why != "" {
		if t.Has("name") {
			t.Bad("name", "%s", why)
		} else {
			j.Name = "job"
		}
	}
	j.Workdir = r.dir
	if dir := t.file("workdir", ""); dir != "" {
		j.Workdir = r.path(dir)
	}
	if info, err := os.Stat(j.Workdir); err != nil || !info.IsDir() {
		t.Bad("workdir", "%s is not a directory", j.Workdir)
	}
	j.Env = t.Texts("env")
	j.Python = r.program(t.file("python", ""))
	if recipe := t.file("recipe", ""); recipe != "" {
		j.Recipe = recipe
	}
	if strings.Contains(j.Recipe, "/") || strings.HasSuffix(j.Recipe, ".toml") {
		j.Recipe = r.path(j.Recipe)
	}
	r.readCommand(t)
	r.needPython(t)
	r.warnOfRankVariables()
}

// badName explains why a name cannot be the name of a folder.
func badName(name string) string {
	switch {
	case name == "":
		return "is empty"
	case name == "." || name == ".." || strings.Contains(name, "/"):
		return fmt.Sprintf("%q cannot name a folder", name)
	case name == ".outbox" || name == ".gitignore": // in .gpurun, next to the jobs' folders
		return fmt.Sprintf("%q is reserved by gpurun", name)
	case len(name) > 100:
		return "is longer than 100 bytes"
	case strings.ContainsFunc(name, unicode.IsControl):
		return "holds control characters"
	}
	return ""
}

// path makes a path of the file absolute. A relative path counts from the file's folder.
func (r *reader) path(p string) string {
	if p == "" || filepath.IsAbs(p) {
		return p
	}
	return filepath.Join(r.dir, p)
}

// program makes a program's path absolute. It does not change a bare name, which PATH resolves.
func (r *reader) program(p string) string {
	if strings.Contains(p, "/") {
		return r.path(p)
	}
	return p
}

// warnOfRankVariables warns about variables of the job without effect, if it is certain that its processes
// are ranks.
func (r *reader) warnOfRankVariables() {
	if r.line != nil && !r.self() {
		r.job.Warnings = append(r.job.Warnings, r.job.idleVariables()...)
	}
}

// idleVariables returns warnings about variables of the job that have no effect on ranks.
func (j *Job) idleVariables() []string {
	var sentences []string
	for _, name := range rankVariables {
		if _, set := j.Env[name]; set {
			sentences = append(sentences, name+" in the job's environment has no effect: gpurun sets it for each rank")
		}
	}
	return sentences
}

// rankVariables are the variables that gpurun sets for each rank, overriding the user's values.
var rankVariables = []string{
	"RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_RANK", "GROUP_WORLD_SIZE", "ROLE_RANK",
	"ROLE_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT",
}

// under makes a path absolute, unless it is empty.
func under(dir, path string) string {
	if path == "" || filepath.IsAbs(path) {
		return path
	}
	return filepath.Join(dir, path)
}

// checkKnobs checks the [knobs] table with the recipes.
func checkKnobs(root map[string]any) []Problem {
	table, ok := root["knobs"].(map[string]any)
	if !ok {
		return nil
	}
	_, problems := recipes.FromKnobs(table)
	out := make([]Problem, 0, len(problems))
	for _, p := range problems {
		out = append(out, Problem{Key: p.Key, Message: p.Message, Suggest: p.Suggest})
	}
	return out
}

// checkRecipe returns a Check that reports a job.recipe that is neither a recipe nor a file. Paths are
// relative to dir, the folder of the train.toml.
func checkRecipe(dir string) Check {
	return func(root map[string]any) []Problem {
		table, _ := root["job"].(map[string]any)
		name, _ := table["recipe"].(string)
		wrong := Problem{Key: []string{"job", "recipe"}, AtValue: true}
		switch {
		case name == "" || name == "auto" || name == "none" || strings.HasPrefix(name, "~"):
			return nil // package job handles these
		case strings.Contains(name, "/") || strings.HasSuffix(name, ".toml"):
			if !filepath.IsAbs(name) {
				name = filepath.Join(dir, name)
			}
			if _, err := os.Stat(name); err == nil {
				return nil
			}
			wrong.Message = name + " does not exist"
			return []Problem{wrong}
		}
		catalog, err := recipes.Catalog()
		names := append(RecipeNames(catalog), "auto", "none")
		if err != nil || slices.Contains(names, name) {
			return nil
		}
		wrong.Message = fmt.Sprintf(
			"there is no recipe %q; gpurun recipes lists them, and a path to a recipe file works too", name)
		wrong.Suggest = Nearest(name, names)
		return []Problem{wrong}
	}
}

// RecipeNames returns the names of recipes.
func RecipeNames(catalog []recipes.Recipe) []string {
	names := make([]string, 0, len(catalog))
	for _, r := range catalog {
		names = append(names, r.Name)
	}
	return names
}

// readResume reads [resume], whose first two keys need each other.
func (r *reader) readResume() {
	t := r.table("resume")
	latest, args := t.file("latest", ""), t.Words("args")
	switch {
	case t.Has("latest") && !t.Has("args"):
		r.problems = append(r.problems, Problem{Key: []string{"resume", "latest"},
			Message: `needs resume.args, by which the job resumes, such as ["--resume", "{latest}"]`})
	case t.Has("args") && !t.Has("latest"):
		r.problems = append(r.problems, Problem{Key: []string{"resume", "args"},
			Message: `needs resume.latest, a pattern for checkpoints such as "out/ckpt-*"`})
	}
	if args != nil && !slices.ContainsFunc(args, func(a string) bool { return strings.Contains(a, "{latest}") }) {
		t.Bad("args", "none of them has {latest}, where the checkpoint's path goes")
	}
	if latest == "" && t.Has("latest") {
		t.Filled("latest")
	}
	if _, err := filepath.Match(latest, ""); err != nil {
		t.Bad("latest", "%q is not a pattern: a bracket or a backslash is left open", latest)
	}
	if t.Has("data") && !t.Has("latest") {
		t.Bad("data", "describes what a job does when it resumes: it needs resume.latest and resume.args")
	}
	r.job.Resume = recipes.Resume{Latest: r.pattern(latest), Args: args}
	r.job.Resume.Data, r.job.Resume.Exact = format.ReadData(t.Filled("data"))
}

// pattern makes a pattern absolute. It quotes special characters in the folder's name.
func (r *reader) pattern(p string) string {
	if p == "" || filepath.IsAbs(p) {
		return p
	}
	quoted := strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`).Replace(r.dir)
	return filepath.Join(quoted, p)
}

// readProgress reads [progress].
func (r *reader) readProgress() {
	t := r.table("progress")
	step := t.Expression("step")
	if step == nil {
		return
	}
	pattern, unknown := strategy.StepPatternOf(step.SubexpNames())
	switch {
	case len(unknown) > 0:
		t.Bad("step", "the group %q means nothing; groups can be called step, total and loss", unknown[0])
		return
	case pattern.Step == 0:
		t.Bad("step", `has no group for the step's number, such as (\d+)`)
		return
	}
	r.job.Step = step.String()
}

// readMetrics reads [metrics]. A setting for all jobs must give each job its own file.
func (r *reader) readMetrics(forAll bool) {
	t, m := r.table("metrics"), &r.job.Metrics
	if t.Has("textfile") {
		file := t.file("textfile", "")
		if why := badTextFile(file, forAll); why != "" {
			t.Bad("textfile", "%s", why)
		}
		m.TextFile, r.job.textFileHere = r.path(file), !forAll && file != ""
	}
	if t.Has("listen") {
		m.Listen = t.Text("listen", "")
		if why := badListen(m.Listen); why != "" {
			t.Bad("listen", "%s", why)
		}
	}
}

// filledIn matches a placeholder for a name in the file's path.
var filledIn = lazy.Regexp(`\{[^{}]*\}`)

// badTextFile explains why a path cannot be the path of the metrics; empty if it can, or if the path is
// empty.
func badTextFile(path string, forAll bool) string {
	if path == "" {
		return ""
	}
	names := filledIn().FindAllString(path, -1)
	for _, name := range names {
		if name != "{job}" && name != "{run}" {
			return fmt.Sprintf("%s has no meaning here; {job} is the job's name, {run} the run's", name)
		}
	}
	switch base := filepath.Base(path); {
	case !strings.HasSuffix(path, ".prom") || base == ".prom":
		return fmt.Sprintf("%q is not a name that ends in .prom: node_exporter reads no other file", path)
	case forAll && len(names) == 0:
		return `all jobs would write one file; put {job} into its name, as in "gpurun-{job}.prom"`
	}
	return ""
}

// textFolder refuses a missing folder for this job's metrics. If the setting is for all jobs, it may be meant
// for other machines: then there is only a warning while the job trains.
func (j *Job) textFolder() error {
	folder := filepath.Dir(strings.ReplaceAll(j.Metrics.TextFile, "{job}", j.Name))
	if !j.textFileHere || j.Metrics.TextFile == "" || filledIn().MatchString(folder) {
		return nil
	}
	if info, err := os.Stat(folder); err != nil || !info.IsDir() {
		return errext.Errorf("make it, or name the folder that node_exporter reads (--collector.textfile.directory)",
			"metrics.textfile: there is no folder %s", folder)
	}
	return nil
}

// badListen explains why gpurun cannot listen at an address; empty if it can, or if the address is empty. It
// refuses a name, which would have to be looked up before the job can start.
func badListen(address string) string {
	if address == "" {
		return ""
	}
	host, port, err := net.SplitHostPort(address)
	_, named := netip.ParseAddr(host)
	n, wrong := strconv.Atoi(port)
	if err != nil || host != "" && host != "localhost" && named != nil || wrong != nil || n < 0 || n > 65535 {
		return fmt.Sprintf(`%q is not an address with a port, such as "127.0.0.1:9400"`, address)
	}
	return ""
}

// MetricsOf returns the destinations of a run's metrics.
func (p *Prepared) MetricsOf(run string) strategy.Metrics {
	m := p.Job.Metrics
	m.TextFile = strings.NewReplacer("{job}", p.Job.Name, "{run}", run).Replace(m.TextFile)
	return m
}

// mostNodes bounds the nodes of a launch.
const mostNodes = 1 << 16

// leastLogLimit is enough for a head, a tail, and the line between them. The default holds some millions of
// lines: a week of a job that prints a few per second. With it, the two logs of each of eight ranks that
// print without end take at most 4 GiB.
const leastLogLimit = 4 << 10

// readLaunch reads [launch], which adds to torchrun's flags in the command.
func (r *reader) readLaunch() {
	l := &r.job.Launch
	port, ranks := l.MasterPort, l.NprocPerNode
	t := r.readKeys("launch")
	r.contradiction(t, "master_port", "master-port", port != l.MasterPort)
	r.contradiction(t, "nproc_per_node", "nproc-per-node", ranks != l.NprocPerNode)
	if t.Has("nproc_per_node") {
		l.askedFor(r.line != nil)
	}
	r.readNodes(t)
	r.checkDataParallel(t)
}

// readNodes reads the required number of nodes.
func (r *reader) readNodes(t *fileTable) {
	v, ok := r.value(t, *Said("launch", "nnodes"))
	if !ok || v == "auto" {
		return
	}
	count := fmt.Sprint(v)
	if given := r.job.nodes.Count; given.Value != "" && given.Value != count {
		t.Bad("nnodes", "contradicts %s in the command, which is %s; keep one", given.By, given.Value)
	}
	r.job.nodes.Count = commandline.NodeValue{Value: count, By: "launch.nnodes"}
}

// stallRule returns the rule for "off", "auto" or a duration.
func stallRule(v any) *strategy.StallRule {
	switch v := v.(type) {
	case time.Duration:
		return &strategy.StallRule{After: strategy.Seconds(v)}
	case string:
		if v == "auto" {
			return &strategy.StallRule{}
		}
	}
	return nil
}

// contradiction reports a key that contradicts a flag in the command.
func (r *reader) contradiction(t *fileTable, key, flag string, differ bool) {
	if r.line == nil || !differ || !t.Has(key) {
		return
	}
	if source, set := r.line.Set[flag]; set {
		t.Bad(key, "contradicts %s in the command; keep one", source)
	}
}

// checkDataParallel reports a number of data-parallel ranks that does not divide the number of ranks, if that
// is known.
func (r *reader) checkDataParallel(t *fileTable) {
	l := r.job.Launch
	ranks, err := strconv.Atoi(l.NprocPerNode)
	if err == nil && l.DataParallel > 0 && !l.Self && ranks%l.DataParallel != 0 {
		t.Bad("data_parallel", "%d ranks cannot be divided by %d", ranks, l.DataParallel)
	}
}

// The values of launch.preflight: the checks before the first attempt.
const (
	PreflightAuto = "auto"  // what the driver reports about the GPUs, while the ranks start
	PreflightOn   = "true"  // the same before the ranks start, and a trial of each GPU
	PreflightOff  = "false" // nothing
)

// Examined returns how many GPUs are checked before the first attempt, beginning with the first that the job
// sees: one per rank. A process that starts no ranks uses at least one. It is 0 if checks are off, and for a
// job on the CPU.
func (p *Prepared) Examined() int {
	if l := p.Job.Launch; l.Preflight == PreflightOff || l.NprocPerNode == "cpu" || p.Accelerator() != "cuda" {
		return 0
	}
	return min(p.GPUs.Count, p.Ranks)
}
