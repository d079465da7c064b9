package strategy

import "strings"

// caveat is what the framework does not guarantee about the data of a relaunch that
// goes on from a checkpoint, empty where it guarantees all.
func (s *situation) caveat(d Decision) string {
	if !d.Relaunch || d.Resume == "" {
		return ""
	}
	var words []string
	if data := s.job.Resumption.Data; data != "" {
		words = append(words, data)
	}
	for _, k := range Knobs {
		if shift := s.job.Resumption.Shifts[k]; shift != "" && s.turned(k, d.Next) {
			words = append(words, shift)
		}
	}
	return strings.Join(words, "; ")
}

// turned reports whether an attempt that may have written the checkpoint had
// another value for a knob.
func (s *situation) turned(k Knob, next Plan) bool {
	for _, a := range s.history {
		if a.Plan[k] != next[k] {
			return true
		}
	}
	return false
}
