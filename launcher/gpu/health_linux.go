//go:build linux && cgo

package gpu

import (
	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

func (l *library) version() (string, error) {
	v, ret := l.nvml.SystemGetDriverVersion()
	return v, failure(ret)
}

// health reads what the device answers; each question is newer than some drivers, and
// none is answered by all devices.
func (l *library) health(uuid string) (Health, error) {
	handle, ret := l.nvml.DeviceGetHandleByUUID(uuid)
	if ret != nvml.SUCCESS {
		return Health{}, failure(ret)
	}
	var h Health
	if l.has("nvmlDeviceGetTotalEccErrors") {
		if n, ret := handle.GetTotalEccErrors(nvml.MEMORY_ERROR_TYPE_UNCORRECTED, nvml.VOLATILE_ECC); ret == nvml.SUCCESS {
			h.Uncorrected = int64(n)
		}
	}
	if l.has("nvmlDeviceGetRetiredPagesPendingStatus") {
		if pending, ret := handle.GetRetiredPagesPendingStatus(); ret == nvml.SUCCESS {
			h.Pending = pending == nvml.FEATURE_ENABLED
		}
	}
	if l.has("nvmlDeviceGetRemappedRows") {
		if correctable, uncorrectable, pending, failed, ret := handle.GetRemappedRows(); ret == nvml.SUCCESS {
			h.Remapped, h.Pending, h.Failed = correctable+uncorrectable, h.Pending || pending, failed
		}
	}
	if l.has("nvmlDeviceGetCurrentClocksThrottleReasons") {
		if reasons, ret := handle.GetCurrentClocksThrottleReasons(); ret == nvml.SUCCESS {
			h.Slowed = slowed(reasons)
		}
	}
	if l.has("nvmlDeviceGetTemperature") {
		if celsius, ret := handle.GetTemperature(nvml.TEMPERATURE_GPU); ret == nvml.SUCCESS {
			h.Celsius = int(celsius)
		}
	}
	return h, nil
}

// slowed names what holds the clocks down. The load's own power cap and an idle GPU's
// low clocks are as they should be.
func slowed(reasons uint64) string {
	switch {
	case reasons&(nvml.ClocksThrottleReasonSwThermalSlowdown|nvml.ClocksThrottleReasonHwThermalSlowdown) != 0:
		return "heat"
	case reasons&nvml.ClocksThrottleReasonHwPowerBrakeSlowdown != 0:
		return "power brake"
	case reasons&nvml.ClocksThrottleReasonHwSlowdown != 0:
		return "hardware"
	}
	return ""
}
