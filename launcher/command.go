package launcher

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"

	"github.com/gpurun/gpurun/model"
)

// Digest tells commands apart, apart from the attempt's folder dir, which is another one on
// each node: SHA-256 in hexadecimal.
func Digest(c model.Command, dir string) string {
	text, err := json.Marshal(struct {
		model.Command
		Files map[string][]byte `json:"files"`
	}{c, c.Files})
	if err != nil {
		panic("launcher: a command is text: " + err.Error())
	}
	quoted, _ := json.Marshal(dir)
	sum := sha256.Sum256(bytes.ReplaceAll(text, quoted[1:len(quoted)-1], nil))
	return hex.EncodeToString(sum[:])
}
