// Included before every C file of `make dist`; only go-nvml's have the macro. NVML is
// loaded at run time and the linker cannot find its functions, which other linkers are
// told to ignore (--unresolved-symbols). zig's has no such option, but leaves alone
// what is weak.
#ifdef NVML_NO_UNVERSIONED_FUNC_DEFS
#pragma clang attribute push(__attribute__((weak)), apply_to = function)
#include "nvml.h"
#pragma clang attribute pop
#endif
