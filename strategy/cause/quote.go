package cause

import (
	"slices"
	"strings"
)

// programErrors are classes of mistakes of a program or its input. No allocator raises them: a
// memory error quoted in their message is a value that the program held.
var programErrors = []string{
	"KeyError", "IndexError", "LookupError", "ValueError", "TypeError", "AttributeError", "NameError", "UnboundLocalError",
	"AssertionError", "ImportError", "ModuleNotFoundError", "NotImplementedError", "ZeroDivisionError", "ArithmeticError",
	"OverflowError", "FloatingPointError", "StopIteration", "StopAsyncIteration", "SyntaxError", "IndentationError",
	"TabError",
	"UnicodeError", "UnicodeDecodeError", "UnicodeEncodeError", "JSONDecodeError", "FileNotFoundError", "FileExistsError",
	"IsADirectoryError", "NotADirectoryError", "PermissionError", "RecursionError", "EOFError", "TimeoutError",
	"UnpicklingError",
}

// memoryErrors are classes whose name shows that memory ran out.
var memoryErrors = []string{"OutOfMemoryError", "MemoryError", "_ArrayMemoryError", "ResourceExhaustedError",
	"ArrowMemoryError"}

// heads may precede the memory error in an exception's message, as may class names and brackets;
// after anything else the memory error is a quotation.
var heads = []string{
	"CUDA error:", "CUDA error", "CUDA driver error:", "HIP error:", "cuDNN error:", "cuBLAS error:",
	"cuda runtime error", "XPU error:", "NPU error:",
	"err == 0.", ".", ",", "-", "NCCL error in:", "NCCL Error 1:", "NCCL Error 2:", "parallel_for failed:", "CUDA Error:",
	"Error:", "ERROR", "FATAL",
	"INTERNAL:", "UNKNOWN:", "Internal:", "Unknown:", "Exception:", "Expected", "Graph execution error:", "Caught",
}

// sentences are in the messages of allocators alone. In the messages of libraries, other words
// about memory follow one of their places or calls.
var sentences = []string{"ried to allocate", "DefaultCPUAllocator", "Unable to allocate"}

// simpleName is a class's name without its module.
func simpleName(class string) string { return class[strings.LastIndexByte(class, '.')+1:] }

// isProgramError reports whether a class is one of programErrors.
func isProgramError(class string) bool { return slices.Contains(programErrors, simpleName(class)) }

// quotes reports whether the line of an exception only quotes the memory error that the pattern
// found: within a sentence, not at the message's start. A process that reported the exception
// itself (whole) would also have reported the one that it was raised from.
func quotes(class, text string, p *pattern, whole bool) bool {
	if !p.code.OutOfMemory() || p.whole || p.sure || slices.Contains(memoryErrors, simpleName(class)) {
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

// isHead reports whether a text consists of heads, class names and brackets.
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
		if !named && !strings.Contains(word, "/") || named && !exceptionName(name) && !strings.Contains(word, "/") &&
			!upper(name) {
			return false
		}
		text = rest
	}
}

// closing returns the length of the bracketed text that begins here; -1: none. The memory error
// may be within the brackets: "[<CUresult.CUDA_ERROR_…".
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

// NamesMemory reports whether a text names a class of exception that means that memory ran out:
// "c10::OutOfMemoryError", "std::bad_alloc".
func NamesMemory(text string) bool {
	return strings.Contains(text, "OutOfMemoryError") || strings.Contains(text, "bad_alloc")
}
