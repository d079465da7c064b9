package job

import "github.com/gpurun/gpurun/recipes/document"

// Nearest returns the word that was probably meant by a wrong one, or empty.
func Nearest(wrong string, words []string) string { return document.Nearest(wrong, words) }
