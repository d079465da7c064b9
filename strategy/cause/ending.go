package cause

import (
	"math"
	"strings"
)

// endings are the words by which training scripts and frameworks say that they are done.
var endings = []string{
	"raining complete", "raining is complete", "raining finished", "raining has finished", "inished training", "raining done",
	"ompleted training", "one training", "raining ended", "raining took", "'train_runtime'", "\"train_runtime\"", "train_runtime  ",
	"`Trainer.fit` stopped: `max_", "otal training time", "raining time ", "ended successfully", "finished successfully", "completed successfully",
	"uccessfully completed", "uccessfully finished", "exited with code 0", "finished with exit code 0", "epochs completed in ",
}

var ends = newPrefilter(endings)

// endsWell reports whether a line says that the training has ended well.
func endsWell(text string) bool {
	return len(text) <= complaintLimit && ends.find([]byte(text)) != math.MaxInt && !strings.Contains(text, " not ") && !fails(text)
}

// progresses reports whether a line counts an epoch or a step, of whatever.
func progresses(text string) bool {
	if len(text) > complaintLimit {
		return false
	}
	_, counts := numberAfterAny(text, "poch", "tep", "teration", "Iter", "iter")
	return counts && !fails(text)
}

// fails reports whether a line speaks of a failure.
func fails(text string) bool {
	return contains(text, []string{"rror", "ailed", "ailure", "xception", "bort", "illed", "out of memory", "OOM", "srun:", "slurmstepd"})
}
