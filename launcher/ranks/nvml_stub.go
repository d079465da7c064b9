//go:build !linux || !cgo

package ranks

import "fmt"

// builtIn: go-nvml does not compile without cgo.
const builtIn = false

// openDriver has nothing to open.
func openDriver(string) (driver, error) {
	return nil, fmt.Errorf("%w: this gpurun was built without cgo", ErrNoNVML)
}
