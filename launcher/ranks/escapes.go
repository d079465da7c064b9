package ranks

import (
	"bytes"
	"github.com/gpurun/gpurun/launcher/lazy"
)

// escapes match the escape sequences of terminals: colours, cursor movements, titles.
var escapes = lazy.Regexp(`\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-Z\\^_])`)

// plain returns a line without escape sequences.
func plain(line []byte) []byte {
	if bytes.IndexByte(line, 0x1b) < 0 {
		return line
	}
	return escapes().ReplaceAll(line, nil)
}
