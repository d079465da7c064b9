package cause

import (
	"slices"
	"strings"
)

// programErrors are the classes by which Python and libraries say that a program is
// wrong, or its input. No allocator raises them: words about memory in their message
// are a value, a row, a text that the program held in its hands.
var programErrors = []string{
	"KeyError", "IndexError", "LookupError", "ValueError", "TypeError", "AttributeError", "NameError", "UnboundLocalError",
	"AssertionError", "ImportError", "ModuleNotFoundError", "NotImplementedError", "ZeroDivisionError", "ArithmeticError",
	"OverflowError", "FloatingPointError", "StopIteration", "StopAsyncIteration", "SyntaxError", "IndentationError", "TabError",
	"UnicodeError", "UnicodeDecodeError", "UnicodeEncodeError", "JSONDecodeError", "FileNotFoundError", "FileExistsError",
	"IsADirectoryError", "NotADirectoryError", "PermissionError", "RecursionError", "EOFError", "TimeoutError", "UnpicklingError",
}

// memoryErrors are the classes that say by themselves that memory ran out.
var memoryErrors = []string{"OutOfMemoryError", "MemoryError", "_ArrayMemoryError", "ResourceExhaustedError", "ArrowMemoryError"}

// heads may stand in an exception's message before the words about memory; anything
// else there is a sentence that quotes them. Class names and what stands in brackets
// may, too.
var heads = []string{
	"CUDA error:", "CUDA error", "CUDA driver error:", "HIP error:", "cuDNN error:", "cuBLAS error:", "cuda runtime error", "XPU error:", "NPU error:",
	"err == 0.", ".", ",", "-", "NCCL error in:", "NCCL Error 1:", "NCCL Error 2:", "parallel_for failed:", "CUDA Error:", "Error:", "ERROR", "FATAL",
	"INTERNAL:", "UNKNOWN:", "Internal:", "Unknown:", "Exception:", "Expected", "Graph execution error:", "Caught",
}

// sentences are in the messages of allocators, which nobody but them raises. Other words
// about memory stand in the messages of libraries after a place or a call of theirs.
var sentences = []string{"ried to allocate", "DefaultCPUAllocator", "Unable to allocate"}

// simpleName is a class's name without its module.
func simpleName(class string) string { return class[strings.LastIndexByte(class, '.')+1:] }

// isProgramError reports whether a class is one of programErrors.
func isProgramError(class string) bool { return slices.Contains(programErrors, simpleName(class)) }

// quotes reports whether the line of an exception only quotes the words about memory
// that the pattern found in it: behind a sentence, not at the message's start. Where the
// process has told of the exception itself (whole), it would have told of what it was
// raised from as well.
func quotes(class, text string, p *pattern, whole bool) bool {
	if !p.code.OutOfMemory() || p.whole || slices.Contains(memoryErrors, simpleName(class)) {
		return false
	}
	if p.phase == Load {
		return false // servers that size their caches raise ValueError
	}
	if isProgramError(class) {
		return true
	}
	_, message, _ := strings.Cut(text, ":")
	at := strings.Index(message, p.words[0])
	if at <= 0 || isHead(message[:at]) {
		return false
	}
	named := strings.Contains(message[:at+len(p.words[0])], "Error: ") // another class, within the sentence
	return named || whole && contains(message[at:], sentences) || slices.Contains(Remarks(p.code, text), SaysOOMKill)
}

// isHead reports whether nothing but heads, class names and brackets stand in a text.
func isHead(text string) bool {
	for {
		text = strings.TrimLeft(text, " ")
		if text == "" {
			return true
		}
		if end := closing(text); end >= 0 {
			text = text[end:]
			continue
		}
		i := slices.IndexFunc(heads, func(h string) bool { return strings.HasPrefix(text, h) })
		if i >= 0 {
			text = text[len(heads[i]):]
			continue
		}
		word, rest, _ := strings.Cut(text, " ")
		name, named := strings.CutSuffix(word, ":")
		if !named && !strings.Contains(word, "/") || named && !exceptionName(name) && !strings.Contains(word, "/") && !upper(name) {
			return false
		}
		text = rest
	}
}

// closing returns the length of the bracketed text that begins here, -1 for none. The
// words about memory may stand within the brackets: "[<CUresult.CUDA_ERROR_…".
func closing(text string) int {
	for _, pair := range []string{"[]", "()"} {
		if text[0] == pair[0] {
			if i := strings.IndexByte(text, pair[1]); i >= 0 {
				return i + 1
			}
			return len(text)
		}
	}
	return -1
}

// upper reports whether a word is written in capitals: "RESOURCE_EXHAUSTED".
func upper(word string) bool { return word != "" && strings.ToUpper(word) == word }

// NamesMemory reports whether a text names a class of exception that says that memory
// ran out: "c10::OutOfMemoryError", "std::bad_alloc".
func NamesMemory(text string) bool {
	return strings.Contains(text, "OutOfMemoryError") || strings.Contains(text, "bad_alloc")
}
