package cause

import "testing"

// TestAllocators: the messages in the sources of the stacks that have their own allocator of
// device memory. The numbers are made up.
func TestAllocators(t *testing.T) {
	said := map[string]bool{}
	for _, c := range []struct {
		stack, log string
		weight     Weight
	}{
		{"faiss", "RuntimeError: Error in virtual void* faiss::gpu::StandardGpuResourcesImpl::allocMemory(const faiss::gpu::AllocRequest&) at faiss/gpu/StandardGpuResources.cpp:452: Error: 'err == cudaSuccess' failed: StandardGpuResources: alloc fail type TemporaryMemoryOverflow dev 0 space Device stream 0x1 size 1073741824 bytes (cudaMalloc error out of memory [2])", WeightCause},
		{"faiss, to 1.6 and in its first rewrite", "could not cudaMalloc 4000000 bytes!", WeightCause},
		{"faiss, to 1.6 and in its first rewrite", "RuntimeError: Error in virtual void* faiss::gpu::StandardGpuResourcesImpl::allocMemory(const faiss::gpu::AllocRequest&) at faiss/gpu/StandardGpuResources.cpp:443: Error: 'err == cudaSuccess' failed: Failed to cudaMalloc 536870912 bytes on device 1 (error 2 out of memory", WeightCause},
		{"TensorRT", "[E] [TRT] ../rtSafe/safeRuntime.cpp (25) - Cuda Error in allocate: 2 (out of memory)", WeightCause},
		{"TensorRT", "[E] Error Code 1: Cuda Runtime (out of memory)", WeightWarning},
		{"TensorRT", "[E] [virtualMemoryBuffer.cpp::resizePhysical::154] Error Code 2: OutOfMemory (Requested size was 1073741824 bytes.)", WeightWarning},
		{"CANN (Ascend, HCCL)", "EL0004: [PID: 7] 2026-03-02-10:00:00.000.000 Failed to allocate memory.", WeightCause},
		{"CANN (Ascend, HCCL)", "        Failed to allocate resource[DeviceMemory] with info [size:1073741824]. Reason: Memory resources are exhausted.", WeightCause},
		{"CANN (Ascend, HCCL)", "Call rtMalloc fail, purpose: page caching, type = 2, size:1073741824, device_id:0[FUNC:Alloc][FILE:device_allocator.cc][LINE:72]", WeightCause},
		{"PyTorch's expandable segments", "[rank0]:[W302 10:00:00 CUDACachingAllocator.cpp:508] expandable_segments: memory mapping failed with OOM on device 0 while trying to map 20971520 bytes", WeightWarning},
		{"AOTInductor", "RuntimeError: run_func_( container_handle_ ) API call failed: memory mapping failed with OOM on device 0", WeightCause},
		{"TensorFlow's kernels", "F t.cu.cc:7] Non-OK-status: GpuLaunchKernel(k, n, b, 0, d.stream(), x) status: Internal: out of memory", WeightCause},
		{"ggml", "alloc_tensor_range: failed to allocate CUDA0 buffer of size 1073741824", WeightCause},
	} {
		said[c.stack] = true
		log := c.log + "\n"
		if _, _, ok := exception(c.log); ok {
			log = "Traceback (most recent call last):\n  File \"t.py\", line 3, in <module>\n    f()\n" + log
		}
		found := Scan("stderr", log)
		if len(found) != 1 || found[0].Code != CUDAOOM || found[0].Weight != c.weight {
			t.Errorf("%s: %+v, want one cuda-oom, %s", c.stack, found, c.weight)
		}
	}
	for _, a := range allocators {
		if !said[a.stack] || a.source == "" {
			t.Errorf("%s has no message here, or no source", a.stack)
		}
	}
}
