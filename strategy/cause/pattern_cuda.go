package cause

// cudaPatterns match reports that a device has no memory left.
var cudaPatterns = []pattern{
	// torch.OutOfMemoryError by the allocator: 0.4 to 2.x; "HIP" is ROCm, "XPU"
	// is Intel's (2.3 on), "MPS backend" is Apple's (1.12 on). 1.x and 2.x lay
	// the figures out differently, see figures.go.
	// In its trial run, vLLM takes as many requests as it may ever have at once.
	{code: CUDAOOM, words: words("CUDA out of memory occurred when warming up sampler with"), phase: Eval},
	// SGLang's scheduler; vLLM's allocator, as the engine takes its memory back after sleep.
	{code: CUDAOOM, words: words("Prefill out of memory. Try to lower your batch size"), phase: Rollout},
	{code: CUDAOOM, words: words("Decode out of memory. Try to lower your batch size"), phase: Rollout},
	{code: CUDAOOM, words: words("CUDA Error: out of memory at ", "cumem_allocator"), phase: Rollout},
	{code: CUDAOOM, words: words("Not enough memory. Please try to increase --mem-fraction-static"), phase: Load},
	{code: CUDAOOM, words: words("CUDA out of memory")},
	{code: CUDAOOM, words: words("HIP out of memory")},
	{code: CUDAOOM, words: words("XPU out of memory")},
	{code: CUDAOOM, words: words("can NOT allocate memory block with size larger than")}, // Intel's extension, 1.13 to 2.3
	{code: CUDAOOM, words: words("MPS backend out of memory")},
	{code: CUDAOOM, words: words("NPU out of memory")},
	// The cudaMallocAsync backend, 2.0 on; its figures are on separate lines.
	{code: CUDAOOM, words: words("would exceed allowed memory")},
	// cudaErrorMemoryAllocation outside of the caching allocator: contexts,
	// streams, libraries. "torch.AcceleratorError" is 2.8 on.
	// also flash-attn's and xFormers' "CUDA error (file:line): out of memory"
	{code: CUDAOOM, words: words("CUDA error", ": out of memory")},
	{code: CUDAOOM, words: words("CUDA driver error: out of memory")}, // PyTorch 2.x with expandable_segments
	{code: CUDAOOM, words: words("Triton Error [CUDA]: out of memory")},
	{code: CUDAOOM, words: words("CUDA Error", "out of memory")},          // darknet and its descendants
	{code: CUDAOOM, words: words("CUDA failed with error out of memory")}, // CTranslate2
	{code: CUDAOOM, words: words("CUDA failure", "out of memory")},        // ONNX Runtime
	// ggml, hand-written extensions
	{code: CUDAOOM, words: words("cudaMalloc", "out of memory")},
	{code: CUDAOOM, words: words("Failed to allocate memory for requested buffer of size")}, // ONNX Runtime's arena
	{code: CUDAOOM, words: words("HIP error: out of memory")},
	{code: CUDAOOM, words: words("CUDA error 2: out of memory")}, // NVIDIA Warp
	{code: CUDAOOM, words: words("cuda runtime error (2) : out of memory")},
	{code: CUDAOOM, words: words("THCudaCheck FAIL", ": out of memory")}, // PyTorch to 1.6
	{code: CUDAOOM, words: words("cudaErrorMemoryAllocation")},
	// driver API: JAX, TF, numba, CuPy
	{code: CUDAOOM, words: words("CUDA_ERROR_OUT_OF_MEMORY"),
		without: words("failed to allocate", "retry", "evice: CUDA_ERROR_OUT")},
	// XLA's and TF's pools log each try, then ask for less
	{code: CUDAOOM, weight: WeightWarning, words: words("CUDA_ERROR_OUT_OF_MEMORY")},
	{code: CUDAOOM, words: words("hipErrorOutOfMemory")},
	{code: CUDAOOM, words: words("hipErrorMemoryAllocation")},
	{code: CUDAOOM, words: words("Failed to CUDA calloc")}, // NCCL's last error, 2.19 on
	{code: CUDAOOM, words: words("Failed to CUDA malloc")},
	{code: CUDAOOM, words: words("Cuda failure", "out of memory")}, // NCCL, all versions; 2.x quotes the words
	// SYCL on Intel's GPUs: the unified runtime, the plugin interface before it, Level Zero.
	{code: CUDAOOM, words: words("UR_RESULT_ERROR_OUT_OF_DEVICE_MEMORY")},
	{code: CUDAOOM, words: words("UR_RESULT_ERROR_OUT_OF_RESOURCES")},
	{code: CUDAOOM, words: words("UR_RESULT_ERROR_MEM_OBJECT_ALLOCATION_FAILURE")},
	{code: CUDAOOM, words: words("PI_ERROR_OUT_OF_RESOURCES")},
	{code: CUDAOOM, words: words("PI_ERROR_MEM_OBJECT_ALLOCATION_FAILURE")},
	{code: CUDAOOM, words: words("ZE_RESULT_ERROR_OUT_OF_DEVICE_MEMORY")},
	{code: CUDAOOM, words: words("MUSA out of memory")},
	{code: CUDAOOM, words: words("MLU out of memory")},
	// Loops that catch it and stop: accelerate, Composer, fairseq.
	{code: CUDAOOM, words: words("No executable batch size found, reached zero")},
	{code: CUDAOOM, words: words("The train loop failed with an internal microbatch of size 1")},
	{code: CUDAOOM, words: words("OOM during optimization, irrecoverable")},
	// Libraries that fail to allocate their handle or workspace.
	{code: CUDAOOM, words: words("CUBLAS_STATUS_ALLOC_FAILED")},
	{code: CUDAOOM, words: words("CUDNN_STATUS_ALLOC_FAILED")},
	{code: CUDAOOM, words: words("CUSPARSE_STATUS_ALLOC_FAILED")},
	{code: CUDAOOM, words: words("CUSOLVER_STATUS_ALLOC_FAILED")},
	{code: CUDAOOM, words: words("CUFFT_ALLOC_FAILED")},
	{code: CUDAOOM, words: words("HIPBLAS_STATUS_ALLOC_FAILED")},
	// bitsandbytes csrc: "Error out of memory at line 380 in file .../pythonInterface.c".
	{code: CUDAOOM, words: words("Error out of memory at line")},
	// CuPy's pool: cupy.cuda.memory.OutOfMemoryError.
	{code: CUDAOOM, words: words("cupy", "OutOfMemoryError: Out of memory allocating")},
	{code: CUDAOOM, words: words("OutOfMemoryError: Out of memory allocating")},
	{code: CUDAOOM, words: words("Out of memory allocating ", " bytes (allocated so far")}, // Chainer omits the class
	{code: CUDAOOM, words: words("out of memory to allocate ", " bytes (total ")},          // CuPy to 6
	// RAPIDS memory manager.
	{code: CUDAOOM, words: words("std::bad_alloc: out_of_memory: CUDA error")},
	{code: CUDAOOM, words: words("std::bad_alloc: CUDA error")},
	// A TPU's vector and scalar memories are on the chip: a kernel's resources.
	{code: KernelResources, words: words("Ran out of memory in memory space vmem")},
	{code: KernelResources, words: words("Ran out of memory in memory space smem")},
	// JAX and XLA: RESOURCE_EXHAUSTED on a GPU or TPU; a TPU runs out when compiling.
	{code: CUDAOOM, words: words("compile", "Ran out of memory in memory space"), phase: Load},
	{code: CUDAOOM, words: words("Ran out of memory in memory space")},
	// XLA drops the choice
	{code: CUDAOOM, weight: WeightWarning, words: words("algorithm_picker.cc", "xhausted: Failed to")},
	{code: CUDAOOM, weight: WeightWarning, words: words("algorithm_picker.cc", "RESOURCE_EXHAUSTED")},
	{code: CUDAOOM, weight: WeightWarning, words: words("autotuner", "RESOURCE_EXHAUSTED")},
	{code: CUDAOOM, words: words("RESOURCE_EXHAUSTED: Out of memory")},
	{code: CUDAOOM, words: words("of memory while trying to allocate ")}, // the words before may be on the line before
	{code: CUDAOOM, words: words("RESOURCE_EXHAUSTED: Failed to allocate request")},
	{code: CUDAOOM, words: words("Resource exhausted: Out of memory")},
	{code: CUDAOOM, words: words("RESOURCE_EXHAUSTED", "That was not possible")},
	{code: CUDAOOM, words: words("INTERNAL: Failed to allocate ", " bytes for new constant")},
	{code: CUDAOOM, words: words("Out of memory error on GPU", "Cannot allocate")}, // PaddlePaddle
	{code: CUDAOOM, words: words("ResourceExhaustedError", "failed to allocate memory")},
	// TensorFlow 1 and 2: the operation's file names gradient kernels.
	{code: HostOOM, words: words("OOM when allocating tensor", "device:CPU"), device: "cpu"},
	{code: CUDAOOM, words: words("_grad_", "OOM when allocating tensor"), phase: Backward},
	{code: CUDAOOM, words: words("OOM when allocating tensor")},
	{code: CUDAOOM, words: words("Dst tensor is not initialized")}, // a copy to a GPU without free memory
	{code: CUDAOOM, weight: WeightWarning, words: words("Allocator (GPU_", "ran out of memory trying to allocate")},
	{code: CUDAOOM, weight: WeightWarning, words: words("Ran out of memory trying to allocate")}, // to 1.2
	// Intel's extension
	{code: CUDAOOM, weight: WeightWarning, words: words("Allocator ran out of memory trying to allocate")},
	// vLLM sizes its cache by the remaining memory: the device is too small for the plan.
	{code: CUDAOOM, words: words("larger than the maximum number of tokens that can be stored in KV cache"), phase: Load},
	{code: CUDAOOM, words: words("No available memory for the cache blocks"), phase: Load},
	{code: CUDAOOM, words: words("KV cache is needed, which is larger than the available KV cache memory"), phase: Load},
	// at its start
	{code: GPUOccupied, words: words("Free memory on device", "is less than desired GPU memory utilization"), phase: Load},
}
