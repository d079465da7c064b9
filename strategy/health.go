package strategy

import (
	"fmt"

	"github.com/gpurun/gpurun/strategy/cause"
)

// Health is what the driver says of a GPU's state. What it does not tell is zero: a
// GPU without ECC, an old driver.
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
	// Recovery is what the driver says that the GPU needs, empty for nothing.
	Recovery cause.RecoveryAction
	// Links counts the GPU's NVLinks that are up, and Recovered how often one had to be
	// brought up again after errors.
	Links     int
	Recovered int64
	// Fabric says that the GPU has not joined the NVLink fabric of its NVSwitches, in the
	// driver's words; empty where it has, or there is none.
	Fabric string
	// Slowed is why the clocks are held down, and not by the load: "heat", "power brake",
	// "hardware"; empty where they are not.
	Slowed string
	// Celsius is the temperature of the chip, 0 where it is not told.
	Celsius int
	// Bus is the GPU's place on the PCI bus, "00000000:4B:00.0".
	Bus string
}

// Unfit says why nothing should be trained on the GPU, empty where nothing speaks against
// it. NVIDIA's GPU memory error management asks for a reset before new work where rows wait
// to be remapped, and for another GPU where one could not be
// (https://docs.nvidia.com/deploy/a100-gpu-mem-error-mgmt/).
func (h Health) Unfit() string {
	switch {
	case h.Failed:
		return "broken memory, and no spare rows left"
	case h.Recovery != "":
		return h.Recovery.Text()
	case h.Pending:
		return "broken memory waits to be remapped"
	}
	return ""
}

// Notable is what is worth knowing of a GPU that can be trained on. Most is how many links
// are up on the node's other GPUs of its model, 0 where there are none.
func (h Health) Notable(most int) []string {
	var all []string
	if h.Uncorrected > 0 {
		all = append(all, fmt.Sprintf("%s of its memory that ECC could not correct since the driver was loaded", Count(h.Uncorrected, "error")))
	}
	if h.Links < most {
		all = append(all, fmt.Sprintf("%d NVLinks are up, and %d on another GPU of its model", h.Links, most))
	}
	if h.Recovered > 0 {
		all = append(all, fmt.Sprintf("NVLinks were brought up again after errors %s", times(h.Recovered)))
	}
	if h.Fabric != "" {
		all = append(all, h.Fabric)
	}
	if h.Slowed != "" {
		all = append(all, fmt.Sprintf("slowed down by %s at %d °C", h.Slowed, h.Celsius))
	}
	return all
}

// Count is a number of things: "1 attempt", "2 attempts".
func Count[N int | int64](n N, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return fmt.Sprintf("%d %ss", n, thing)
}

func times(n int64) string {
	if n == 1 {
		return "once"
	}
	return fmt.Sprintf("%d times", n)
}
