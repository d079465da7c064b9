package wire

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
)

// The head listens on one of a few ports that all nodes can name, so that none has to be
// told. They lie below those that systems give to whoever asks for any.
const (
	firstPort = 20011
	portRange = 12000
	portCount = 16
)

// candidates are the ports of a launch's head, the first of which that is free it takes.
func candidates(run string, restart int) []int {
	ports := make([]int, portCount)
	for k := range ports {
		sum := sha256.Sum256(fmt.Appendf(nil, "%d|%d|%s", restart, k, run))
		ports[k] = firstPort + int(binary.BigEndian.Uint64(sum[:])%portRange)
	}
	return ports
}
