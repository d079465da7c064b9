package cause

import (
	"fmt"
	"strconv"
	"strings"
)

// devicePatterns match errors of GPUs, their kernels and their driver.
var devicePatterns = []pattern{
	// Triton and Numba: on-chip resources, not memory.
	{code: KernelResources, words: words("OutOfResources: out of resource")},
	{code: KernelResources, weight: WeightWarning, words: words("out of resource: ")}, // autotuning drops the choice
	{code: KernelResources, words: words("too many resources requested for launch")},
	{code: KernelResources, words: words("CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES")},
	{code: KernelResources, words: words("uses too much shared data")}, // ptxas
	// CUDA runtime errors in PyTorch's wording.
	{code: Diverged, words: words("Assertion `probability tensor contains either")}, // torch.multinomial
	{code: DeviceAssert, words: words("device-side assert triggered")},
	{code: DeviceAssert, words: words("CUDA_ERROR_ASSERT")},
	{code: DeviceAssert, words: words("Assertion `", "` failed.", "thread: [")},
	{code: DeviceAssert, words: words("block: [", "thread: [", "Assertion `")}, // a terminal may break the line before "failed"
	{code: DeviceAssert, words: words("Device-side assertion `", "' failed")},  // ROCm
	{code: IllegalAccess, words: words("an illegal memory access was encountered")},
	{code: IllegalAccess, words: words("CUDA_ERROR_ILLEGAL_ADDRESS")},
	{code: IllegalAccess, words: words("cudaErrorIllegalAddress")},
	{code: IllegalAccess, words: words("CUDA error: misaligned address")},
	{code: IllegalAccess, words: words("CUDA error: invalid address space")},
	{code: IllegalAccess, words: words("operation not supported on global/shared address space")}, // a wild pointer
	{code: IllegalAccess, words: words("an illegal instruction was encountered")},
	// a kernel failed: mostly this one's arguments, or one before it
	{code: IllegalAccess, words: words("CUBLAS_STATUS_EXECUTION_FAILED")},
	{code: IllegalAccess, words: words("Memory access fault by GPU node")}, // ROCm
	{code: GPUHardware, words: words("uncorrectable ECC error")},
	{code: GPUHardware, words: words("CUDA_ERROR_ECC_UNCORRECTABLE")},
	{code: GPUHardware, words: words("uncorrectable NVLink error")},
	// the driver breaks the sentence over several lines if it finds the GPU gone
	{code: GPUHardware, words: words("fallen off the bus")},
	{code: GPUHardware, words: words("GPU is lost")},
	{code: GPUHardware, words: words("Unable to determine the device handle for GPU")}, // nvidia-smi
	{code: GPUHardware, words: words("ouble bit ECC")},
	{code: GPUHardware, words: words("ouble-bit ECC")},
	{code: GPUHardware, words: words("GPU requires reset")},
	{code: GPUHardware, words: words("CUDA error: hardware stack error")},
	{code: GPUHardware, words: words("hardware error", "CUDA error")},
	{code: GPUHardware, words: words("CUDA error: ", "over nvlink or a hardware error")},
	{code: Unknown, words: words("NVRM: Xid")},                                   // the number decides, see scanner
	{code: Driver, weight: WeightWarning, words: words("failed call to cuInit")}, // TensorFlow continues without a GPU
	{code: Driver, words: words("no kernel image is available for execution")},
	{code: Driver, words: words("CUDA driver version is insufficient for CUDA runtime version")},
	{code: Driver, words: words("NVIDIA driver on your system is too old")},
	{code: Driver, words: words("Found no NVIDIA driver on your system")},
	{code: Driver, words: words("No CUDA GPUs are available")},
	{code: Driver, words: words("no CUDA-capable device is detected")},
	{code: Driver, words: words("Torch not compiled with CUDA enabled")},
	{code: Driver, words: words("system not yet initialized")}, // fabric manager is not up
	{code: Driver, words: words("forward compatibility was attempted on non supported HW")},
	{code: Driver, words: words("provided PTX was compiled with an unsupported toolchain")},
	{code: Driver, words: words("CUDA unknown error - this may be due to an incorrectly set up environment")},
	{code: Driver, words: words("cuda runtime error (30) : unknown error", "THCGeneral")}, // the same, to PyTorch 1.4
	// NVML: NCCL works without it if it can, and otherwise reports it in its last error.
	{code: NCCLError, weight: WeightWarning, words: words("NCCL WARN ", "Driver/library version mismatch")},
	{code: Driver, words: words("Driver/library version mismatch")},
	{code: GPUOccupied, words: words("all CUDA-capable devices are busy or unavailable")},
	{code: GPUOccupied, words: words("CUDA-capable device(s) is/are busy or unavailable")},
	// Failures that the message does not explain: memory, hardware or a bug.
	{code: Unknown, words: words("CUDA error: unknown error")},
	{code: Unknown, words: words("unspecified launch failure")},
	{code: Unknown, words: words("the launch timed out and was terminated")},
	{code: Unknown, words: words("CUDNN_STATUS_NOT_INITIALIZED")},
	{code: Unknown, words: words("CUDNN_STATUS_INTERNAL_ERROR")},
	{code: Unknown, words: words("CUDNN_STATUS_EXECUTION_FAILED")},
	{code: Unknown, words: words("CUDNN_STATUS_MAPPING_ERROR")},
	// often memory, which the message does not prove
	{code: Unknown, words: words("Unable to find a valid cuDNN algorithm to run convolution")},
	{code: Unknown, words: words("CUBLAS_STATUS_NOT_INITIALIZED")},
	{code: Unknown, words: words("CUBLAS_STATUS_INTERNAL_ERROR")},
}

// DriverVersion is the version of CUDA that a driver supports, by PyTorch's message that it is
// too old: "11.4"; empty: not in the message.
func DriverVersion(text string) string {
	_, rest, _ := strings.Cut(text, "is too old (found version ")
	number, _ := leadingDigits(rest, 6)
	v, err := strconv.Atoi(number)
	if err != nil {
		return ""
	}
	return fmt.Sprintf("%d.%d", v/1000, v%1000/10)
}
