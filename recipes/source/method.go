package source

import (
	"regexp"
	"strings"
)

// Required counts, for each class with this method, the parameters that every call of the
// method has to give, by the class's name.
func Required(text []byte, method string) map[string]int {
	clean := withoutComments(string(text))
	found := map[string]int{}
	head := regexp.MustCompile(`(?m)^[ \t]*(?:async[ \t]+)?def[ \t]+` + regexp.QuoteMeta(method) + `[ \t]*\(`)
	for _, m := range classLine.FindAllStringSubmatchIndex(clean, -1) {
		inner := body(clean[m[1]:], m[3]-m[2])
		at := head.FindStringIndex(inner)
		if at == nil {
			continue
		}
		parts, _ := inBrackets(inner, at[1]-1)
		n := 0
		for _, part := range parts[min(1, len(parts)):] { // self comes first
			if strings.HasPrefix(part, "*") || strings.Contains(part, "=") {
				break
			}
			n++
		}
		found[clean[m[4]:m[5]]] = n
	}
	return found
}
