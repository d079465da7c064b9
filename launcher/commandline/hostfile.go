package commandline

import (
	"fmt"
	"slices"
	"strings"
)

// A host is a line of a hostfile of DeepSpeed: "worker-1 slots=8".
type host struct{ name, slots string }

// mostHosts bounds what is read of a hostfile.
const mostHosts = 1 << 16

// hostsOf reads a hostfile (fetch_hostfile in deepspeed/launcher/runner.py).
func hostsOf(text string) ([]host, error) {
	var hosts []host
	for line := range strings.Lines(text) {
		line, _, _ = strings.Cut(line, "#")
		words := strings.Fields(line)
		if len(words) == 0 {
			continue
		}
		if len(words) != 2 || !strings.HasPrefix(words[1], "slots=") {
			return nil, fmt.Errorf("%q is no line such as \"worker-1 slots=8\"", strings.TrimSpace(line))
		}
		if len(hosts) == mostHosts {
			return nil, fmt.Errorf("it has more than %d hosts", mostHosts)
		}
		hosts = append(hosts, host{words[0], strings.TrimPrefix(words[1], "slots=")})
	}
	return hosts, nil
}

// included are the hosts that --include chooses, "a@b" or "a:0,1@b:0,1", and the devices
// that each of them uses; empty for all.
func included(hosts []host, include string) (chosen []host, devices string, err error) {
	for i, spec := range strings.Split(include, "@") {
		name, slots, _ := strings.Cut(spec, ":")
		at := slices.IndexFunc(hosts, func(h host) bool { return h.name == name })
		if at < 0 {
			return nil, "", fmt.Errorf("--include %s: no host %s is in the hostfile", include, name)
		}
		if i > 0 && slots != devices {
			return nil, "", fmt.Errorf("--include %s: gpurun uses the same devices on each node", include)
		}
		devices = slots
		chosen = append(chosen, hosts[at])
	}
	return chosen, devices, nil
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
