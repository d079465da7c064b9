package cause

// atExitWriters are libraries that write when a process ends, with or without an error:
// summaries, bars that close, engines that are torn down. What they write after an error, even a
// traceback, does not show that the process continued.
var atExitWriters = []string{
	"/wandb/", "/tqdm/", "/deepspeed/", "/comet_ml/", "/mlflow/", "/clearml/", "/neptune/", "/tensorboard", "/multiprocessing/resource_tracker.py",
}

// startedByProgram is the outermost frame of a process that the program started: Python's
// multiprocessing runs a string.
const startedByProgram = "<string>"

// leavesProgram reports whether a traceback with these outermost frames leaves the program
// itself: not a process that it started, and not what is written as it ends.
func leavesProgram(first, second frame) bool {
	return first.file != startedByProgram && !contains(second.file, atExitWriters)
}
