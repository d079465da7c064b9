package job

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"

	"github.com/gpurun/gpurun/launcher/errext"
)

// Metrics say where Prometheus finds the metrics of a run.
type Metrics struct {
	// TextFile is the absolute path of a file for node_exporter, Listen the address of a
	// server; empty for none.
	TextFile, Listen string
}

// readMetrics reads [metrics]. What is said for all jobs has to give each a file of its own.
func (r *reader) readMetrics(forAll bool) {
	t, m := r.table("metrics"), &r.job.Metrics
	if t.has("textfile") {
		file := t.file("textfile", "")
		if why := badTextFile(file, forAll); why != "" {
			t.bad("textfile", "%s", why)
		}
		m.TextFile, r.job.textFileHere = r.path(file), !forAll && file != ""
	}
	if t.has("listen") {
		m.Listen = t.text("listen", "")
		if why := badListen(m.Listen); why != "" {
			t.bad("listen", "%s", why)
		}
	}
}

// filledIn matches what stands for a name in the file's path.
var filledIn = regexp.MustCompile(`\{[^{}]*\}`)

// badTextFile says why a path cannot be that of the metrics, empty if it can. An empty path
// is none.
func badTextFile(path string, forAll bool) string {
	if path == "" {
		return ""
	}
	names := filledIn.FindAllString(path, -1)
	for _, name := range names {
		if name != "{job}" && name != "{run}" {
			return fmt.Sprintf("%s stands for nothing; {job} is the job's name, {run} the run's", name)
		}
	}
	switch base := filepath.Base(path); {
	case !strings.HasSuffix(path, ".prom") || base == ".prom":
		return fmt.Sprintf("%q is no name that ends in .prom: node_exporter reads no other file", path)
	case forAll && len(names) == 0:
		return `all jobs would write one file; put {job} into its name, as in "gpurun-{job}.prom"`
	}
	return ""
}

// textFolder refuses a folder of this job's metrics that is not there. What is said for all
// jobs may be meant for machines that have one: there it is a warning while the job trains.
func (j *Job) textFolder() error {
	folder := filepath.Dir(strings.ReplaceAll(j.Metrics.TextFile, "{job}", j.Name))
	if !j.textFileHere || j.Metrics.TextFile == "" || filledIn.MatchString(folder) {
		return nil
	}
	if info, err := os.Stat(folder); err != nil || !info.IsDir() {
		return errext.Errorf("make it, or name the folder that node_exporter reads (--collector.textfile.directory)", "metrics.textfile: there is no folder %s", folder)
	}
	return nil
}

// badListen says why nobody can listen there, empty if somebody may. An empty address is none,
// and a name would have to be looked up before the job can start.
func badListen(address string) string {
	if address == "" {
		return ""
	}
	host, port, err := net.SplitHostPort(address)
	_, named := netip.ParseAddr(host)
	n, wrong := strconv.Atoi(port)
	if err != nil || host != "" && host != "localhost" && named != nil || wrong != nil || n < 0 || n > 65535 {
		return fmt.Sprintf(`%q is no address with a port, such as "127.0.0.1:9400"`, address)
	}
	return ""
}

// Metrics say where the metrics of a run go to.
func (p *Prepared) Metrics(run string) Metrics {
	m := p.resolved.job.Metrics
	m.TextFile = strings.NewReplacer("{job}", p.resolved.job.Name, "{run}", run).Replace(m.TextFile)
	return m
}
