package gpu

import (
	"strconv"
	"strings"
)

// uuidLength is the length of a GPU's UUID; CUDA compares no further.
const uuidLength = len("GPU-00000000-0000-0000-0000-000000000000")

// parseVisible splits CUDA_VISIBLE_DEVICES as CUDA does. The first word tells
// what the list holds: UUIDs of GPUs, UUIDs of MIG instances, or numbers. The
// first word of another sort, or a negative number, ends the list, so that "-1"
// and "NoDevFiles" are empty lists. Where this is not in NVIDIA's manual it was
// seen with driver 580; PyTorch does nearly the same in
// torch.cuda._parse_visible_devices.
func parseVisible(list string) []string {
	for _, prefix := range []string{"GPU-", "MIG-"} {
		if strings.HasPrefix(list, prefix) {
			return parseWords(list, func(word string) (string, bool) {
				if prefix == "GPU-" {
					word = word[:min(len(word), uuidLength)]
				}
				return word, len(word) > len(prefix) && strings.HasPrefix(word, prefix)
			})
		}
	}
	return parseWords(list, func(word string) (string, bool) {
		k, ok := leadingNumber(strings.TrimSpace(word))
		return strconv.Itoa(k), ok
	})
}

// Words are the devices that a value of CUDA_VISIBLE_DEVICES names, as CUDA reads it;
// none for "", "-1" or "NoDevFiles".
func Words(list string) []string { return parseVisible(list) }

func parseWords(list string, parse func(string) (string, bool)) []string {
	var words []string
	for word := range strings.SplitSeq(list, ",") {
		parsed, ok := parse(word)
		if !ok {
			break
		}
		words = append(words, parsed)
	}
	return words
}

// leadingNumber reads as strtol does, into 32 bits: a sign and the digits that a
// word begins with. A negative number is none.
func leadingNumber(word string) (int, bool) {
	end := 0
	for end < len(word) && (isDigit(word[end]) || end == 0 && (word[0] == '+' || word[0] == '-')) {
		end++
	}
	long, err := strconv.ParseInt(word[:end], 10, 64)
	k := int32(long)
	return int(k), err == nil && k >= 0
}

func isDigit(c byte) bool { return '0' <= c && c <= '9' }

// ordinal reads a word of parseVisible that is a number.
func ordinal(word string) (int, bool) {
	k, err := strconv.Atoi(word)
	return k, err == nil
}
