package strategy

import "github.com/gpurun/gpurun/strategy/memory"

// Fitting reports whether a plan of a job that is not running is predicted to fit a device,
// by what earlier runs measured.
func Fitting(j Job, past []Past, plan Plan, d memory.DeviceMemory) bool {
	j.Remembered = nil
	for _, p := range past {
		j.Remembered = append(j.Remembered, p.Measured...)
	}
	s := &situation{job: j, plan: plan, inventory: Inventory{Device: d, HostAvailable: d.Host, NVMeFree: d.NVMe}}
	if d.CPU {
		s.inventory.Accelerator = "cpu"
	}
	fit, t, why := s.fitted()
	if why != "" {
		return false
	}
	words := t.memory(plan)
	p := fit.Predict(words)
	return p.Unknown == "" && p.Bound <= fit.Room(words) && fit.Beside(p)
}
