package cause

import (
	"iter"
	"math"
	"slices"
	"strconv"
	"strings"
)

// units are the suffixes of byte counts. All are powers of two: XLA writes G for GiB, PyTorch's
// MPS allocator and Ray write GB for it.
var units = []struct {
	name  string
	bytes float64
}{
	{"bytes", 1}, {"Bytes", 1}, {"byte", 1},
	{"KiB", 1 << 10}, {"MiB", 1 << 20}, {"GiB", 1 << 30}, {"TiB", 1 << 40}, {"PiB", 1 << 50},
	{"kB", 1 << 10}, {"KB", 1 << 10}, {"MB", 1 << 20}, {"GB", 1 << 30}, {"TB", 1 << 40},
	{"K", 1 << 10}, {"M", 1 << 20}, {"G", 1 << 30}, {"T", 1 << 40}, {"B", 1},
}

// limit is more than any machine has: an overflowed request is larger.
const limit = 1 << 56

// leadingDigits cuts off the digits at the beginning of a text, if they are at most so many.
func leadingDigits(text string, most int) (number, rest string) {
	n := 0
	for n < len(text) && n < most && text[n] >= '0' && text[n] <= '9' {
		n++
	}
	return text[:n], text[n:]
}

// behind yields the text after each occurrence of a mark.
func behind(text, mark string) iter.Seq[string] {
	return func(yield func(string) bool) {
		for _, rest, found := strings.Cut(text, mark); found; _, rest, found = strings.Cut(rest, mark) {
			if !yield(rest) {
				return
			}
		}
	}
}

// quantity reads "1.06 GiB" or "1,073,741,824 bytes" at the beginning of s. It also returns its
// length.
func quantity(s string) (bytes *int64, length int) {
	i := 0
	for i < len(s) && i < 40 && (s[i] >= '0' && s[i] <= '9' || s[i] == '.' || s[i] == ',') {
		i++
	}
	if i == 0 {
		return nil, 0
	}
	n, err := strconv.ParseFloat(strings.ReplaceAll(s[:i], ",", ""), 64)
	if err != nil {
		return nil, 0
	}
	rest := strings.TrimLeft(s[i:], " ")
	for _, u := range units {
		if strings.HasPrefix(rest, u.name) {
			length = len(s) - len(rest) + len(u.name)
			if length < len(s) && letter(s[length]) {
				continue
			}
			v := math.Round(n * u.bytes)
			if v < 0 || v >= limit {
				return nil, length
			}
			b := int64(v)
			return &b, length
		}
	}
	return nil, 0
}

func letter(c byte) bool { return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' }

// after reads the quantity that follows the first mark that has one.
func after(text string, marks ...string) *int64 {
	for _, m := range marks {
		for rest := range behind(text, m) {
			if b, n := quantity(rest); n > 0 {
				return b
			}
		}
	}
	return nil
}

// before reads the quantity just before the first mark that has one.
func before(text string, marks ...string) *int64 {
	for _, m := range marks {
		for rest := range behind(text, m) {
			// The quantity is the last one or two words: "6.76 GiB", "51.26GiB".
			head := strings.TrimRight(text[:len(text)-len(rest)-len(m)], " ")
			one := strings.LastIndexAny(head, " (;,") + 1
			two := strings.LastIndexAny(strings.TrimRight(head[:max(one-1, 0)], " "), " (;") + 1
			for _, start := range []int{two, one} {
				if b, n := quantity(head[start:]); n > 0 && start+n == len(head) {
					return b
				}
			}
		}
	}
	return nil
}

// parseFigures reads the numbers of an out-of-memory message. Known forms:
//
//	1.x: Tried to allocate X (GPU n; C total capacity; A already allocated; F free; [W allowed;] R reserved in total by PyTorch)
//	2.x: Tried to allocate X. GPU n has a total capacity of C of which F is free. [Process N has P memory in use.]
//	     [Including non-PyTorch memory, this process has P memory in use.] [W allowed;] Of the allocated memory A is
//	     allocated by PyTorch, [with G allocated in private pools,] and U is reserved by PyTorch but unallocated.
//	CPU: DefaultCPUAllocator: can't allocate memory: you tried to allocate N bytes
//	numpy: Unable to allocate X for an array
//	XLA: Out of memory while trying to allocate X; Used X of C hbm
//	CuPy: Out of memory allocating N bytes (allocated so far: A bytes, limit set to: W bytes)
//	cudaMallocAsync: Allocation on device n would exceed allowed memory. (out of memory), with a figure a line below it
//	Paddle: Cannot allocate X memory on GPU n, A memory has been allocated and available memory is only F
//	TPU: Attempting to allocate X. That was not possible. There are F free.
//
// Two ranks that write at once run their messages together: the second one's
// figures are not the first one's.
func parseFigures(text string) Figures {
	if first := strings.Index(text, "ut of memory. Tried to allocate"); first >= 0 {
		if second := strings.Index(text[first+1:], "ut of memory. Tried to allocate"); second >= 0 {
			text = text[:first+1+second]
		}
	}
	f := Figures{
		Requested: after(text, "ried to allocate ", "trying to allocate ", "nable to allocate ", "Out of memory allocating ",
			"llocate request for ", "Attempting to allocate ", "Attempting to reserve ", "memory space hbm. Used ",
			"alloc of size ",
			"requested buffer of size ", "CUDA calloc async ", "CUDA calloc ", "CUDA malloc ", "memory to allocate ",
			"Cannot allocate ", "INTERNAL: Failed to allocate ", "Requested               : "),
		Capacity: after(text, "total capacity of ", "total capacty of ", "Device limit            : "),
		Free:     after(text, "of which ", "available memory is only ", "Free (according to CUDA): "),
		Allowed:  before(text, " allowed;"),
		Process:  after(text, "this process has "),
		Allocated: after(text, "Of the allocated memory ", "allocated so far: ", "MPS allocated: ",
			"Currently allocated     : "),
		ReservedUnallocated: before(text, " is reserved by PyTorch but unallocated"),
	}
	if f.Capacity == nil {
		f.Capacity = before(text, " total capacity", " hbm.")
	}
	if f.Free == nil {
		f.Free = before(text, " free;", " free)", " free.", " free,")
	}
	if f.Allocated == nil {
		f.Allocated = before(text, " already allocated", " memory has been allocated")
	}
	if f.Allowed == nil {
		f.Allowed = after(text, "limit set to: ", "memory fraction) : ")
	}
	f.tenants(text)
	f.ofRay(text)
	return f
}

// ofRay reads the message of Ray's memory monitor: "… (…, memory used=2.22GB) was running was 59.49GB /
// 62.58GB (0.95), which exceeds the memory usage threshold of 0.9". The threshold is a share.
func (f *Figures) ofRay(text string) {
	_, rest, ok := strings.Cut(text, " was running was ")
	used, n := quantity(rest)
	if !ok || used == nil {
		return
	}
	total, _ := quantity(strings.TrimPrefix(rest[n:], " / "))
	if total == nil || *used > *total {
		return
	}
	free := *total - *used
	f.Capacity, f.Free, f.Process = total, &free, after(text, "memory used=")
	_, rest, _ = strings.Cut(rest, "threshold of ")
	if share, err := strconv.ParseFloat(strings.TrimRight(rest[:min(strings.IndexByte(rest+" ", ' '), len(rest))], ".,;"),
		64); err == nil && share > 0 && share < 1 {
		allowed := int64(share * float64(*total))
		f.Allowed = &allowed
	}
}

// ReservedIn is the memory of PyTorch's allocator by its messages before 2.1, in bytes; nil if the
// text does not give it.
func ReservedIn(text string) *int64 { return before(text, " reserved in total") }

// known is the number of figures that the text gives.
func (f *Figures) known() int {
	all := []*int64{f.Requested, f.Capacity, f.Free, f.Allowed, f.Process, f.Allocated, f.ReservedUnallocated,
		f.OtherProcess}
	return len(slices.DeleteFunc(all, func(p *int64) bool { return p == nil }))
}

// tenants reads the "Process N has X memory in use" entries. A message that says
// "this process" lists only others. Otherwise one entry may be this very process
// under the number that another pid namespace gives it: the one whose figure is
// nearest to what PyTorch holds here, and not below it.
func (f *Figures) tenants(text string) {
	var all []int64
	for rest := range behind(text, "Process ") {
		number, tail, _ := strings.Cut(rest, " has ")
		if b, n := quantity(tail); digits(number) && b != nil && strings.HasPrefix(tail[n:], " memory in use") {
			all = append(all, *b)
		}
	}
	if len(all) == 0 {
		return
	}
	own := -1
	if f.Process == nil && f.Allocated == nil {
		// The message is cut before it says what PyTorch holds here: any entry may be this process. Only
		// what the others hold at least is proven.
		largest := slices.Max(all)
		var others int64
		for _, b := range all {
			others += b
		}
		if others -= largest; others > 0 {
			f.Process, f.OtherProcess = &largest, &others
		}
		return
	}
	if f.Process == nil {
		held := *f.Allocated
		if f.ReservedUnallocated != nil {
			held += *f.ReservedUnallocated
		}
		held -= held / 100 // both figures are rounded
		for i, b := range all {
			if b >= held && (own < 0 || b < all[own]) {
				own = i
			}
		}
	}
	var others int64
	for i, b := range all {
		if i == own {
			f.Process = &all[i]
			continue
		}
		others += b
	}
	f.OtherProcess = &others
}

// parseDevice reads which device a message is about: "cuda:3", "xpu:0", "cpu".
func parseDevice(text string) string {
	kind := "cuda:"
	for _, other := range []string{"XPU", "MUSA", "MLU"} {
		if strings.Contains(text, other+" out of memory") {
			kind = strings.ToLower(other) + ":"
		}
	}
	for _, mark := range []string{"(GPU ", "(MLU ", "GPU ", "device:GPU:", "device ordinal ", "on device cuda:"} {
		for rest := range behind(text, mark) {
			number, rest := leadingDigits(rest, 4)
			if number != "" && (rest == "" || strings.IndexByte("; .):", rest[0]) >= 0) {
				return kind + number
			}
		}
	}
	return ""
}

// accelerators are words of messages of stacks and devices other than CUDA's.
var accelerators = []struct{ word, name string }{
	{"MPS backend", "MPS (Apple)"}, {"HIP ", "HIP (AMD)"}, {"hipError", "HIP (AMD)"}, {"XPU ", "XPU (Intel)"},
	{"UR_RESULT_ERROR", "XPU (Intel)"}, {"PI_ERROR_", "XPU (Intel)"}, {"ZE_RESULT_ERROR", "XPU (Intel)"},
	{"MUSA ", "MUSA (Moore Threads)"}, {"MLU ", "MLU (Cambricon)"}, {"NPU ", "NPU (Ascend)"}, {"EL0004", "NPU (Ascend)"},
	{"hbm", "TPU"}, {"XlaRuntimeError", "device (JAX)"}, {"JaxRuntimeError", "device (JAX)"},
	{"RESOURCE_EXHAUSTED", "device (XLA)"},
	{"ResourceExhaustedError", "GPU (TensorFlow)"}, {"OOM when allocating tensor", "GPU (TensorFlow)"},
	{"cudaMalloc error", "GPU (faiss)"},
}

// Accelerator names the device, or the stack, that an out-of-memory message is about; "CUDA" if
// the message does not show another one.
func Accelerator(text string) string {
	for _, a := range accelerators {
		if strings.Contains(text, a.word) {
			return a.name
		}
	}
	return "CUDA"
}

// HostIn is the host in a line of the kernel's log, as syslog and journald write it; empty: none.
func HostIn(text string) string {
	head, _, ok := strings.Cut(text, " kernel: ")
	if !ok {
		return ""
	}
	return head[strings.LastIndexByte(head, ' ')+1:]
}
