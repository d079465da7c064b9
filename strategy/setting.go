package strategy

import "strconv"

// A Setting is a value that a configuration file, a train.toml or a flag set.
type Setting struct {
	Key   string `json:"key"`             // "recovery.max_attempts"
	Value string `json:"value,omitempty"` // as in a file; empty for what may be a secret
	// By is the path of the file, the flag, or "default". Line is that of the key; 0 for none.
	By   string `json:"by"`
	Line int    `json:"line,omitempty"`
	// LockedBy is the file and line that locks the key; empty for none.
	LockedBy string `json:"locked_by,omitempty"`
}

// String is the setting in one line.
func (s Setting) String() string {
	text := s.Key
	if s.Value != "" {
		text += " = " + s.Value
	}
	text += " (" + s.By
	if s.Line > 0 {
		text += ":" + strconv.Itoa(s.Line)
	}
	if s.LockedBy != "" {
		text += ", locked by " + s.LockedBy
	}
	return text + ")"
}
