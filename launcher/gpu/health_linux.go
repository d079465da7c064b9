//go:build linux && cgo

package gpu

import (
	"encoding/binary"
	"fmt"
	"strings"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/gpurun/gpurun/strategy"
	"github.com/gpurun/gpurun/strategy/cause"
)

func (l *library) version() (string, error) {
	v, ret := l.nvml.SystemGetDriverVersion()
	return v, failure(ret)
}

// health reads what the device answers; each question is newer than some drivers, and
// none is answered by all devices.
func (l *library) health(uuid string) (strategy.Health, error) {
	handle, ret := l.nvml.DeviceGetHandleByUUID(uuid)
	if ret != nvml.SUCCESS {
		return strategy.Health{}, failure(ret)
	}
	if strings.HasPrefix(uuid, "MIG-") {
		if whole, ret := handle.GetDeviceHandleFromMigDeviceHandle(); ret == nvml.SUCCESS {
			handle = whole
		}
	}
	var h strategy.Health
	l.readMemoryErrors(handle, &h)
	l.readLinks(handle, &h)
	h.Recovery, h.Bus = l.recovery(handle), l.bus(handle)
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

func (l *library) readMemoryErrors(handle nvml.Device, h *strategy.Health) {
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
}

// readLinks looks at the device's NVLinks, of which those that the board does not use
// answer that they are not supported, or are not active.
func (l *library) readLinks(handle nvml.Device, h *strategy.Health) {
	if !l.has("nvmlDeviceGetNvLinkState") {
		return
	}
	counts := l.has("nvmlDeviceGetNvLinkErrorCounter")
	for link := range nvml.NVLINK_MAX_LINKS {
		state, ret := handle.GetNvLinkState(link)
		if ret != nvml.SUCCESS {
			break
		}
		if state != nvml.FEATURE_ENABLED {
			continue
		}
		h.Links++
		if !counts {
			continue
		}
		if n, ret := handle.GetNvLinkErrorCounter(link, nvml.NVLINK_ERROR_DL_RECOVERY); ret == nvml.SUCCESS {
			h.Recovered += int64(n)
		}
	}
	if h.Links == 0 || !l.has("nvmlDeviceGetGpuFabricInfo") {
		return
	}
	if info, ret := handle.GetGpuFabricInfo(); ret == nvml.SUCCESS {
		h.Fabric = fabric(info)
	}
}

// fabric says what keeps a device from its NVLink fabric; NVML tells of those that have one
// in which state the registration is.
func fabric(info nvml.GpuFabricInfo) string {
	switch info.State {
	case nvml.GPU_FABRIC_STATE_NOT_STARTED:
		return "it has not begun to join the NVLink fabric"
	case nvml.GPU_FABRIC_STATE_IN_PROGRESS:
		return "it is still joining the NVLink fabric"
	case nvml.GPU_FABRIC_STATE_COMPLETED:
		if ret := nvml.Return(info.Status); ret != nvml.SUCCESS {
			return fmt.Sprintf("it could not join the NVLink fabric: %v", failure(ret))
		}
	}
	return ""
}

// recovery is what the driver, 565 or newer, says that the device needs.
func (l *library) recovery(handle nvml.Device) cause.RecoveryAction {
	if !l.has("nvmlDeviceGetFieldValues") {
		return ""
	}
	values := []nvml.FieldValue{{FieldId: nvml.FI_DEV_GET_GPU_RECOVERY_ACTION}}
	if ret := handle.GetFieldValues(values); ret != nvml.SUCCESS || nvml.Return(values[0].NvmlReturn) != nvml.SUCCESS {
		return ""
	}
	switch nvml.DeviceGpuRecoveryAction(binary.NativeEndian.Uint32(values[0].Value[:])) {
	case nvml.GPU_RECOVERY_ACTION_GPU_RESET:
		return cause.RecoverByReset
	case nvml.GPU_RECOVERY_ACTION_NODE_REBOOT:
		return cause.RecoverByReboot
	case nvml.GPU_RECOVERY_ACTION_DRAIN_P2P:
		return cause.RecoverByDrainP2P
	case nvml.GPU_RECOVERY_ACTION_DRAIN_AND_RESET:
		return cause.RecoverByDrainAndReset
	}
	return ""
}

// bus is the device's address, "00000000:4B:00.0".
func (l *library) bus(handle nvml.Device) string {
	if !l.has("nvmlDeviceGetPciInfo_v3") {
		return ""
	}
	info, ret := handle.GetPciInfo()
	if ret != nvml.SUCCESS {
		return ""
	}
	id := make([]byte, 0, len(info.BusId))
	for _, c := range info.BusId {
		if c == 0 {
			break
		}
		id = append(id, byte(c))
	}
	return string(id)
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
