//go:build linux && cgo

package ranks

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

// builtIn: this file is part of the build.
const builtIn = true

// library is the driver's NVML. Nothing of go-nvml is used outside this file.
type library struct {
	nvml nvml.Interface
	// memoryV2: the driver, 510 or newer, separates its own reserve from what is in use.
	// Calling a function that a library lacks ends the process, so that each that is newer
	// than the oldest driver in use is looked up first.
	memoryV2 bool
	mig      bool // the driver, 450 or newer, knows MIG
}

// openDriver loads the library at path, the system's one if that is empty.
func openDriver(path string) (driver, error) {
	var options []nvml.LibraryOption
	if path != "" {
		options = append(options, nvml.WithLibraryPath(path))
	}
	l := &library{nvml: nvml.New(options...)}
	switch ret := l.nvml.Init(); ret {
	case nvml.SUCCESS:
	case nvml.ERROR_LIBRARY_NOT_FOUND:
		return nil, fmt.Errorf("%w: libnvidia-ml.so.1 cannot be loaded", ErrNoNVML)
	case nvml.ERROR_DRIVER_NOT_LOADED:
		return nil, fmt.Errorf("%w: the NVIDIA driver is not loaded", ErrNoNVML)
	default:
		return nil, fmt.Errorf("initialise: %w", failure(ret))
	}
	l.memoryV2 = l.has("nvmlDeviceGetMemoryInfo_v2")
	l.mig = l.has("nvmlDeviceGetMigMode") && l.has("nvmlDeviceGetMaxMigDeviceCount") &&
		l.has("nvmlDeviceGetMigDeviceHandleByIndex")
	return l, nil
}

func (l *library) has(symbol string) bool {
	return l.nvml.Extensions().LookupSymbol(symbol) == nil
}

// versions: that of CUDA is 1000 times the major and ten times the minor one.
func (l *library) versions() (driver string, cuda int) {
	driver, _ = l.nvml.SystemGetDriverVersion()
	cuda, _ = l.nvml.SystemGetCudaDriverVersion()
	return driver, cuda / 1000
}

func (l *library) close() error { return failure(l.nvml.Shutdown()) }

// devices omits GPUs that this process may not use: a control group or a container hides
// them from CUDA, too. Others that do not answer are in the error.
func (l *library) devices() ([]Device, error) {
	count, ret := l.nvml.DeviceGetCount()
	if ret != nvml.SUCCESS {
		return nil, fmt.Errorf("count: %w", failure(ret))
	}
	var devices []Device
	var errs []error
	for i := range count {
		handle, ret := l.nvml.DeviceGetHandleByIndex(i)
		if ret == nvml.ERROR_NO_PERMISSION {
			continue
		}
		if ret != nvml.SUCCESS {
			errs = append(errs, &silentGPU{i, failure(ret)})
			continue
		}
		d, err := l.describe(handle)
		if err != nil {
			errs = append(errs, &silentGPU{i, err})
			continue
		}
		d.Index = i
		devices = append(devices, d)
	}
	return devices, errors.Join(errs...)
}

func (l *library) device(uuid string) (Device, error) {
	handle, ret := l.nvml.DeviceGetHandleByUUID(uuid)
	if ret != nvml.SUCCESS {
		return Device{}, failure(ret)
	}
	return l.describe(handle)
}

// describe reads everything but the index, which a handle by UUID may lack.
func (l *library) describe(handle nvml.Device) (Device, error) {
	var d Device
	var ret nvml.Return
	if d.UUID, ret = handle.GetUUID(); ret != nvml.SUCCESS {
		return d, fmt.Errorf("UUID: %w", failure(ret))
	}
	if d.Name, ret = handle.GetName(); ret != nvml.SUCCESS {
		return d, fmt.Errorf("name: %w", failure(ret))
	}
	if err := l.readMemory(handle, &d); err != nil {
		return d, fmt.Errorf("memory: %w", err)
	}
	// A MIG instance answers neither of the rest on every driver; both are its GPU's.
	if major, minor, ret := handle.GetCudaComputeCapability(); ret == nvml.SUCCESS {
		d.Capability = [2]int{major, minor}
	}
	if l.mig {
		mode, _, ret := handle.GetMigMode()
		d.MIG = ret == nvml.SUCCESS && mode == nvml.DEVICE_MIG_ENABLE
	}
	return d, nil
}

func (l *library) readMemory(handle nvml.Device, d *Device) error {
	if l.memoryV2 {
		if m, ret := handle.GetMemoryInfo_v2(); ret == nvml.SUCCESS {
			d.Total, d.Used = int64(m.Total), int64(m.Used)
			return nil
		}
	}
	m, ret := handle.GetMemoryInfo()
	d.Total, d.Used = int64(m.Total), int64(m.Used)
	return failure(ret)
}

func (l *library) instances(index int) ([]Device, error) {
	if !l.mig {
		return nil, nil
	}
	gpu, ret := l.nvml.DeviceGetHandleByIndex(index)
	if ret != nvml.SUCCESS {
		return nil, failure(ret)
	}
	whole, err := l.describe(gpu)
	if err != nil {
		return nil, err
	}
	count, ret := gpu.GetMaxMigDeviceCount()
	if ret == nvml.ERROR_NOT_SUPPORTED {
		return nil, nil
	}
	if ret != nvml.SUCCESS {
		return nil, failure(ret)
	}
	var devices []Device
	for i := range count {
		handle, ret := gpu.GetMigDeviceHandleByIndex(i)
		if ret != nvml.SUCCESS {
			continue // an empty place, or one of another user
		}
		d, err := l.describe(handle)
		if err != nil {
			return devices, fmt.Errorf("MIG instance %d: %w", i, err)
		}
		d.Index, d.MIG, d.Capability = index, true, whole.Capability
		devices = append(devices, d)
	}
	return devices, nil
}

func (l *library) processes(uuid string) ([]DeviceProcess, error) {
	handle, ret := l.nvml.DeviceGetHandleByUUID(uuid)
	if ret != nvml.SUCCESS {
		return nil, failure(ret)
	}
	compute, ret := handle.GetComputeRunningProcesses()
	if ret != nvml.SUCCESS {
		return nil, failure(ret)
	}
	// A desktop holds memory too; a GPU without a display does not list any.
	graphics, _ := handle.GetGraphicsRunningProcesses()
	var processes []DeviceProcess
	for _, p := range append(compute, graphics...) {
		bytes := int64(p.UsedGpuMemory)
		processes = append(processes, DeviceProcess{PID: int(p.Pid), Bytes: max(bytes, 0)}) // "not available" is -1
	}
	return processes, nil
}

// events are a set of alarms; NVML serialises its use.
type events struct {
	set nvml.EventSet
	// parts are the watched MIG instances by their GPU's UUID: the driver reports the GPU
	// and the number of the instance.
	parts map[string]migInstance
}

type migInstance struct {
	uuid     string
	instance uint32
}

// wholeGPU is the number of the instance in an event of none (nvmlEventData_t in nvml.h).
const wholeGPU = 0xFFFFFFFF

// subscribe returns a usable subscription together with an error that names the devices
// that it does not cover.
func (l *library) subscribe(uuids []string) (subscription, error) {
	set, ret := l.nvml.EventSetCreate()
	if ret != nvml.SUCCESS {
		return nil, fmt.Errorf("create event set: %w", failure(ret))
	}
	e := &events{set: set, parts: map[string]migInstance{}}
	var errs []error
	for _, uuid := range uuids {
		if err := l.register(uuid, e); err != nil {
			errs = append(errs, fmt.Errorf("GPU %s: %w", uuid, err))
		}
	}
	if len(errs) == len(uuids) {
		set.Free()
		return nil, errors.Join(errs...)
	}
	return e, errors.Join(errs...)
}

func (l *library) register(uuid string, e *events) error {
	handle, ret := l.nvml.DeviceGetHandleByUUID(uuid)
	if ret != nvml.SUCCESS {
		return failure(ret)
	}
	if strings.HasPrefix(uuid, "MIG-") {
		instance, ret := handle.GetGpuInstanceId()
		if ret != nvml.SUCCESS {
			return failure(ret)
		}
		if handle, ret = handle.GetDeviceHandleFromMigDeviceHandle(); ret != nvml.SUCCESS {
			return failure(ret)
		}
		whole, ret := handle.GetUUID()
		if ret != nvml.SUCCESS {
			return failure(ret)
		}
		e.parts[whole] = migInstance{uuid, uint32(instance)}
	}
	supported, ret := handle.GetSupportedEventTypes()
	if ret != nvml.SUCCESS {
		return failure(ret)
	}
	const alarms = nvml.EventTypeXidCriticalError | nvml.EventTypeDoubleBitEccError
	return failure(handle.RegisterEvents(supported&alarms, e.set))
}

func (e *events) next(bound time.Duration) (alarm, error) {
	data, ret := e.set.Wait(uint32(bound.Milliseconds()))
	switch ret {
	case nvml.SUCCESS:
	case nvml.ERROR_TIMEOUT:
		return alarm{}, errQuiet
	default:
		return alarm{}, failure(ret)
	}
	uuid, _ := data.Device.GetUUID() // a GPU that has just died may not report it
	if p, cut := e.parts[uuid]; cut && (data.GpuInstanceId == wholeGPU || data.GpuInstanceId == p.instance) {
		uuid = p.uuid
	}
	switch {
	case data.EventType&nvml.EventTypeXidCriticalError != 0:
		return alarm{uuid: uuid, kind: xidAlarm, xid: int(data.EventData)}, nil
	case data.EventType&nvml.EventTypeDoubleBitEccError != 0:
		return alarm{uuid: uuid, kind: eccAlarm}, nil
	}
	return alarm{}, errQuiet
}

func (e *events) close() error { return failure(e.set.Free()) }

// failure returns an NVML result as an error. Success, which is a non-nil error in go-nvml, becomes nil.
func failure(ret nvml.Return) error {
	switch ret {
	case nvml.SUCCESS:
		return nil
	case nvml.ERROR_GPU_IS_LOST:
		return errLost
	}
	return errors.New(ret.Error())
}
