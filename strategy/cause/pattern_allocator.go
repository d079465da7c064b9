package cause

// An allocator is a stack's own allocator of device memory, with the messages in its source by
// which it reports that it wanted memory and had none. PyTorch's, XLA's, TensorFlow's and those
// of the CUDA libraries are in cudaPatterns.
type allocator struct {
	stack, source string
	messages      [][]string // each the words of one message
	retries       bool       // it tries another way after the message, so the message is a warning
}

var allocators = []allocator{
	{"faiss", "faiss/gpu/StandardGpuResources.cpp", [][]string{{"alloc fail type ", "(cudaMalloc error"},
		{"cudaMalloc error out of memory"}}, false},
	{"faiss, to 1.6 and in its first rewrite", "faiss/gpu/utils/DeviceTensor-inl.cuh, MemorySpace.cpp",
		[][]string{{"could not cudaMalloc ", " bytes"}, {"faiss", "Failed to cudaMalloc "}}, false},
	{"TensorRT", "nvinfer's logger, rtSafe/safeRuntime.cpp, to 8.0",
		[][]string{{"Cuda Error in ", "allocate: 2 (out of memory)"}}, false},
	{"TensorRT", "nvinfer's logger, defaultAllocator.cpp and virtualMemoryBuffer.cpp, 8.2 on: the builder drops the tactic", [][]string{
		{"Error Code 1: Cuda Runtime (out of memory)"}, {"Error Code 2: OutOfMemory"},
		{"Requested amount of GPU memory (", "could not be allocated"},
	}, true},
	{"CANN (Ascend, HCCL)", "runtime's and hccl's error codes, memory_pool_manager.cc and device_allocator.cc", [][]string{
		{"EL0004", "allocate memory"}, {"Memory_Allocation_Failure(EL0004)"}, {"Failed to allocate resource[DeviceMemory]"},
		{"Call rtMalloc fail"},
	}, false},
	{"PyTorch's expandable segments", "c10/cuda/CUDACachingAllocator.cpp: it frees its cache and tries again",
		[][]string{{"expandable_segments: memory mapping failed with OOM"}}, true},
	{"AOTInductor", "c10/cuda/CUDACachingAllocator.cpp, in the message of a failed run_impl",
		[][]string{{"memory mapping failed with OOM"}}, false},
	{"TensorFlow's kernels", "core/util/gpu_kernel_helper.h",
		[][]string{{"Non-OK-status: GpuLaunchKernel", "out of memory"}}, false},
	{"ggml", "ggml-cuda.cu, ggml-alloc.c", [][]string{{"alloc_tensor_range: failed to allocate", " buffer of size"}},
		false},
}

// allocatorPatterns are the patterns of the allocators. Their words are never quoted by chance.
var allocatorPatterns = func() (all []pattern) {
	for _, a := range allocators {
		for _, m := range a.messages {
			p := pattern{code: CUDAOOM, words: m, sure: true}
			if a.retries {
				p.weight = WeightWarning
			}
			all = append(all, p)
		}
	}
	return all
}()
