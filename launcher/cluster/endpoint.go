package cluster

import (
	"net/netip"
	"strconv"
	"strings"

	"github.com/gpurun/gpurun/launcher/errext"
)

// endpoint reads "host", "host:port", "[address]:port", or an address of IPv6 as it is.
// Port 0 is none.
func (s Said) endpoint() (host string, port int, err error) {
	text := s.Value
	host, digits := text, "0"
	if inner, rest, bracketed := strings.Cut(strings.TrimPrefix(text, "["), "]"); bracketed && text[0] == '[' {
		host = inner
		if rest != "" {
			digits = strings.TrimPrefix(rest, ":")
		}
	} else if strings.Count(text, ":") == 1 {
		host, digits, _ = strings.Cut(text, ":")
	}
	if port, err = strconv.Atoi(digits); err != nil || port < 0 || port > 65535 {
		return "", 0, errext.Errorf("write host:port, the port from 1 to 65535", "%s=%q: %q is no port", s.By, text, digits)
	}
	if !reachable(host) {
		return "", 0, errext.Errorf("write the host name or the address of the first node", "%s=%q names no host", s.By, text)
	}
	return host, port, nil
}

// reachable reports whether a name could be that of a host, or is an address.
func reachable(name string) bool {
	if strings.Contains(name, ":") {
		_, err := netip.ParseAddr(name)
		return err == nil
	}
	return name != "" && len(name) <= maxName && name[0] != '-' && !strings.ContainsFunc(name, func(r rune) bool {
		letter := r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9'
		return !letter && !strings.ContainsRune("-._", r)
	})
}
