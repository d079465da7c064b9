package wire

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
)

// The head listens on one of a few ports that all nodes can compute. They are below the range of ephemeral
// ports.
const (
	firstPort = 20011
	portRange = 12000
	portCount = 16
)

// candidates returns the possible ports of a launch's head, which takes the first free one.
func candidates(run string, restart int) []int {
	ports := make([]int, portCount)
	for k := range ports {
		sum := sha256.Sum256(fmt.Appendf(nil, "%d|%d|%s", restart, k, run))
		ports[k] = firstPort + int(binary.BigEndian.Uint64(sum[:])%portRange)
	}
	return ports
}
