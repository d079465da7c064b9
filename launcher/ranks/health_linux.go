//go:build linux && cgo

package ranks

import (
	"encoding/binary"
	"fmt"
	"strings"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/gpurun/gpurun/strategy"
	"github.com/gpurun/gpurun/strategy/cause"
)

// query is the answer to a question that some drivers and devices do not know, the zero value
// where they do not.
func query[Answer any](l *library, symbol string, ask func() (Answer, nvml.Return)) (answer Answer) {
	if l.has(symbol) {
		if known, ret := ask(); ret == nvml.SUCCESS {
			return known
		}
	}
	return answer
}

// health reads what the device answers.
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
	h := strategy.Health{
		Recovery: l.recovery(handle),
		Slowed:   slowed(query(l, "nvmlDeviceGetCurrentClocksThrottleReasons", handle.GetCurrentClocksThrottleReasons)),
		Celsius: int(query(l, "nvmlDeviceGetTemperature", func() (uint32, nvml.Return) {
			return handle.GetTemperature(nvml.TEMPERATURE_GPU)
		})),
		Uncorrected: int64(query(l, "nvmlDeviceGetTotalEccErrors", func() (uint64, nvml.Return) {
			return handle.GetTotalEccErrors(nvml.MEMORY_ERROR_TYPE_UNCORRECTED, nvml.VOLATILE_ECC)
		})),
		Pending: query(l, "nvmlDeviceGetRetiredPagesPendingStatus",
			handle.GetRetiredPagesPendingStatus) == nvml.FEATURE_ENABLED,
	}
	for _, c := range query(l, "nvmlDeviceGetPciInfo_v3", handle.GetPciInfo).BusId { // "00000000:4B:00.0"
		if c == 0 {
			break
		}
		h.Bus += string(rune(byte(c)))
	}
	if l.has("nvmlDeviceGetRemappedRows") {
		if correctable, uncorrectable, pending, failed, ret := handle.GetRemappedRows(); ret == nvml.SUCCESS {
			h.Remapped, h.Pending, h.Failed = correctable+uncorrectable, h.Pending || pending, failed
		}
	}
	l.readLinks(handle, &h)
	return h, nil
}

// readLinks reads the device's NVLinks; links that the board does not use are reported as not supported, or
// not active.
func (l *library) readLinks(handle nvml.Device, h *strategy.Health) {
	if !l.has("nvmlDeviceGetNvLinkState") {
		return
	}
	for link := range nvml.NVLINK_MAX_LINKS {
		state, ret := handle.GetNvLinkState(link)
		if ret != nvml.SUCCESS {
			break
		}
		if state != nvml.FEATURE_ENABLED {
			continue
		}
		h.Links++
		h.Recovered += int64(query(l, "nvmlDeviceGetNvLinkErrorCounter", func() (uint64, nvml.Return) {
			return handle.GetNvLinkErrorCounter(link, nvml.NVLINK_ERROR_DL_RECOVERY)
		}))
	}
	if h.Links > 0 {
		h.Fabric = fabric(query(l, "nvmlDeviceGetGpuFabricInfo", handle.GetGpuFabricInfo))
	}
}

// fabric returns why a device is not in its NVLink fabric, by the state of its registration; empty if it is.
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

// recovery returns the recovery action that a driver of version 565 or newer reports for the device.
func (l *library) recovery(handle nvml.Device) cause.RecoveryAction {
	if !l.has("nvmlDeviceGetFieldValues") {
		return ""
	}
	values := []nvml.FieldValue{{FieldId: nvml.FI_DEV_GET_GPU_RECOVERY_ACTION}}
	if ret := handle.GetFieldValues(values); ret != nvml.SUCCESS || nvml.Return(values[0].NvmlReturn) != nvml.SUCCESS {
		return ""
	}
	return map[nvml.DeviceGpuRecoveryAction]cause.RecoveryAction{
		nvml.GPU_RECOVERY_ACTION_GPU_RESET:       cause.RecoverByReset,
		nvml.GPU_RECOVERY_ACTION_NODE_REBOOT:     cause.RecoverByReboot,
		nvml.GPU_RECOVERY_ACTION_DRAIN_P2P:       cause.RecoverByDrainP2P,
		nvml.GPU_RECOVERY_ACTION_DRAIN_AND_RESET: cause.RecoverByDrainAndReset,
	}[nvml.DeviceGpuRecoveryAction(binary.NativeEndian.Uint32(values[0].Value[:]))]
}

// slowed names what holds the clocks down. The load's power cap and an idle GPU's low clocks
// are normal.
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
