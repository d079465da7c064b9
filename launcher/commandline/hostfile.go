package commandline

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// A host is a line of a hostfile of DeepSpeed: "worker-1 slots=8".
type host struct{ name, slots string }

// mostHosts bounds what is read of a hostfile.
const mostHosts = 1 << 16

// hostLine is what DeepSpeed takes for a host.
var hostLine = regexp.MustCompile(`^(\S+)\s+slots=(\d+)`)

// hostsOf reads a hostfile (_parse_hostfile in deepspeed/launcher/runner.py, 0.19).
func hostsOf(text string) ([]host, error) {
	var hosts []host
	known := map[string]bool{}
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		m := hostLine.FindStringSubmatch(line)
		switch {
		case m == nil:
			return nil, fmt.Errorf("%.80q is no line such as \"worker-1 slots=8\"", line)
		case known[m[1]]:
			return nil, fmt.Errorf("%.80q is in it twice", m[1])
		case len(hosts) == mostHosts:
			return nil, fmt.Errorf("it has more than %d hosts", mostHosts)
		}
		known[m[1]] = true
		hosts = append(hosts, host{m[1], m[2]})
	}
	if len(hosts) == 0 {
		return nil, errors.New("it names no host")
	}
	return hosts, nil
}

// included are the hosts that --include chooses, "a@b" or "a:0,1@b:0,1", in the hostfile's
// order, and the devices that each of them uses; empty for all.
func included(hosts []host, include string) (chosen []host, devices string, err error) {
	choice := map[string]bool{}
	for i, spec := range strings.Split(include, "@") {
		name, slots, _ := strings.Cut(spec, ":")
		switch {
		case !slices.ContainsFunc(hosts, func(h host) bool { return h.name == name }):
			return nil, "", fmt.Errorf("--include %s: no host %s is in the hostfile", include, name)
		case i > 0 && slots != devices:
			return nil, "", fmt.Errorf("--include %s: gpurun uses the same devices on each node", include)
		}
		choice[name], devices = true, slots
	}
	return slices.DeleteFunc(slices.Clone(hosts), func(h host) bool { return !choice[h.name] }), devices, nil
}

// sameSlots is how many ranks each of the hosts has, empty where they differ.
func sameSlots(hosts []host) string {
	for _, h := range hosts {
		if h.slots != hosts[0].slots {
			return ""
		}
	}
	return hosts[0].slots
}
