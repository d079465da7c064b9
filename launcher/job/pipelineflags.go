package job

import (
	"regexp"
	"slices"

	"github.com/gpurun/gpurun/launcher/errext"
	"github.com/gpurun/gpurun/recipes/document"
)

// runID is what may name a run: a folder's name on every file system, and no hidden one.
var runID = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$`)

// ifTrained are the values of --if-trained.
var ifTrained = []string{"skip", "run"}

// filled are the flags of pipelines that have to say something: empty they would mean that
// they are not there, where it is a variable of the pipeline that is not set.
var filled = []string{"run-id", "if-trained", "deadline", "junit"}

// checkPipeline judges the flags by which pipelines say which run is meant; set are those
// that are there. The error has a hint.
func checkPipeline(own Own, set map[string]string) error {
	values := map[string]string{"run-id": own.RunID, "if-trained": own.IfTrained, "deadline": own.Deadline, "junit": own.JUnit}
	for _, name := range filled {
		if _, there := set[name]; there && values[name] == "" {
			return errext.Errorf("leave the flag out, or see whether the variable that it comes from is set", "--%s is empty", name)
		}
	}
	switch {
	case own.RunID != "" && own.RunDir != "":
		return errext.Errorf("keep one of them", "--run-id and --run-dir both name the run directory")
	case own.RunID != "" && !runID.MatchString(own.RunID):
		return errext.Errorf(`write up to 64 letters, digits, ".", "_" and "-", the first of them a letter or a digit`, "--run-id: %q cannot name a run", own.RunID)
	case own.IfTrained != "" && !slices.Contains(ifTrained, own.IfTrained):
		return errext.Errorf(meantBy(own.IfTrained, ifTrained, "write "+document.Either(ifTrained)), "--if-trained: unknown value %q", own.IfTrained)
	}
	return nil
}
