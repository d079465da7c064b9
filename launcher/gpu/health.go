package gpu

import (
	"fmt"

	"github.com/gpurun/gpurun/strategy"
)

// Health asks for a device's state; an MIG instance is asked for its GPU's.
func (n *NVML) Health(d Device) (strategy.Health, error) {
	h, err := n.driver.health(d.UUID)
	if err != nil {
		return h, fmt.Errorf("ask for the health of GPU %d: %w", d.Index, err)
	}
	return h, nil
}

// Driver is the driver's version, such as "580.65.06".
func (n *NVML) Driver() (string, error) {
	v, err := n.driver.version()
	if err != nil {
		return "", fmt.Errorf("ask the driver for its version: %w", err)
	}
	return v, nil
}
