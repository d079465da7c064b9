package deepspeed

import (
	"bytes"
	"slices"

	"github.com/gpurun/gpurun/recipes/format"
)

// trainingData is where deepspeed.initialize takes training_data, counted from 0.
const trainingData = 4

// ownBatches is why the configuration does not say how many samples a micro batch
// has: the job makes its batches itself. DeepSpeed makes them where initialize is
// given training_data; a script that asks for the configuration's number, or that
// calls deepspeed_io, goes by it, too. It is empty where the source is not known, or
// has no call.
func ownBatches(cmd format.Command) string {
	if cmd.Script == nil {
		return ""
	}
	if mentions(cmd, dsMicro, "deepspeed_io") {
		return ""
	}
	calls := cmd.Code.CallsOf("deepspeed.initialize")
	for _, call := range calls {
		data, given := call.Keyword["training_data"]
		if !given && len(call.Positional) > trainingData {
			data, given = call.Positional[trainingData], true
		}
		if given && !data.None {
			return ""
		}
	}
	if len(calls) == 0 {
		return ""
	}
	return "the script makes its batches itself: deepspeed.initialize is given no training_data"
}

// mentions reports whether one of the job's sources has one of these words.
func mentions(cmd format.Command, words ...string) bool {
	return slices.ContainsFunc(cmd.Sources(), func(text []byte) bool {
		return slices.ContainsFunc(words, func(word string) bool { return bytes.Contains(text, []byte(word)) })
	})
}
