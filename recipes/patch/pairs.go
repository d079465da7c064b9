package patch

import "slices"

// pair is where the word of a key stands whose value is the word behind it, -1 for
// nowhere: the last one counts. Keys and values follow the options.
func pair(argv []string, key string) int {
	for i := len(argv) - 2; i >= 1; i-- {
		if argv[i] == key && (i < 2 || !optionLike(argv[i-1])) {
			return i
		}
	}
	return -1
}

// setPair returns the command line with the value behind a key set, at the end where
// it is absent.
func setPair(argv []string, key, value string) []string {
	next := slices.Clone(argv)
	if i := pair(next, key); i >= 0 {
		next[i+1] = value
		return next
	}
	return append(next, key, value)
}

// removePairs returns the command line without a key and its values.
func removePairs(argv []string, key string) []string {
	next := slices.Clone(argv)
	for i := pair(next, key); i >= 0; i = pair(next, key) {
		next = slices.Delete(next, i, i+2)
	}
	return next
}
