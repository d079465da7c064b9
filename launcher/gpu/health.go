package gpu

import "fmt"

// Health is what the driver says of a device's state. What it does not tell is zero: a
// GPU without ECC, a driver before 450, an MIG instance.
type Health struct {
	// Uncorrected counts the memory errors since the driver was loaded that ECC found and
	// could not correct.
	Uncorrected int64
	// Remapped counts the rows of memory that spare ones stand in for after such errors.
	Remapped int
	// Pending says that rows are to be remapped, or pages retired, at the GPU's next reset.
	Pending bool
	// Failed says that a row could not be remapped: no spare one was left.
	Failed bool
	// Slowed is why the clocks are held down, and not by the load: "heat", "power brake",
	// "hardware"; empty where they are not.
	Slowed string
	// Celsius is the temperature of the chip, 0 where it is not told.
	Celsius int
}

// Health asks for a device's state.
func (n *NVML) Health(d Device) (Health, error) {
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
