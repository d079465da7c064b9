package doctor

import (
	"context"
	"net"
	"os"
	"path/filepath"

	"github.com/gpurun/gpurun/launcher/python"
)

// notified looks whether there is somebody whom the job's runs are told to. It tells them
// nothing.
func notified(_ context.Context, p *patient) Result {
	switch {
	case p.job == nil:
		return skip(noJob)
	case p.job.Notify.Missing != "":
		return warn("set the variable, or write the file, or take [notify] away", "nobody is told: %s", p.job.Notify.Missing)
	case len(p.job.Notify.Command) > 0:
		program, err := python.Finder{Dir: p.dir, Env: p.env}.InPath(p.job.Notify.Command[0])
		if err != nil {
			return warn("name a program that is there: notify.command", "nobody is told: %v", err)
		}
		return found("by %s", program)
	case p.job.Notify.URL == "":
		return skip("the job's [notify] names nobody")
	}
	return found("where to is known; gpurun has posted nothing")
}

// measured looks whether the metrics of the job's runs could be written and served.
func measured(_ context.Context, p *patient) Result {
	switch {
	case p.job == nil:
		return skip(noJob)
	case p.job.Metrics.TextFile == "" && p.job.Metrics.Listen == "":
		return skip("the job's [metrics] name no place")
	case p.prepared == nil:
		return skip("the job cannot be prepared")
	}
	m := p.prepared.Metrics("run")
	if m.TextFile != "" {
		folder := filepath.Dir(m.TextFile)
		if info, err := os.Stat(folder); err != nil || !info.IsDir() {
			return warn("make the folder, or name another one: metrics.textfile", "no metrics are written: %s is no folder", folder)
		}
		if err := tryWriting(folder); err != nil {
			return warn("let the job's user write there, or name another folder: metrics.textfile", "no metrics are written: %s: %v", folder, err)
		}
	}
	if m.Listen != "" {
		l, err := net.Listen("tcp", m.Listen)
		if err != nil {
			return warn("take another port, or 0 for any: metrics.listen", "no metrics are served: %v", err)
		}
		l.Close()
	}
	return found("the file can be written, the port is free")
}
