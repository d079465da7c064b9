package job

import (
	"fmt"
	"strings"

	"github.com/gpurun/gpurun/launcher/errext"
)

// An inference is a fact about a job that gpurun reads from its source, its configuration or its files. If it
// cannot be read it is unknown, and the job runs nevertheless.
type inference string

// The inferences.
const (
	scriptSource       inference = "the source of the job's script"
	moduleSource       inference = "the source of the job's module"
	importedModules    inference = "what the script imports"
	sourceCode         inference = "what the code of the job calls"
	promisedGPUs       inference = "whether PyTorch can use the promised GPUs"
	usedFramework      inference = "the job's framework"
	scriptSettings     inference = "where the script keeps its settings"
	scriptArguments    inference = "the arguments of the script"
	lossOfJob          inference = "what the loss is"
	joinsGroup         inference = "whether the script joins a process group"
	inProcess          inference = "what can be changed in the process"
	currentPlan        inference = "the job's plan"
	checkpointPlaces   inference = "where the job keeps its checkpoints"
	oneFolder          inference = "how to keep all attempts in one folder"
	experimentTrackers inference = "the job's experiment trackers"
	rememberedPlans    inference = "the remembered plans of this job"
	writtenPlan        inference = "how the plan is written into the command"
)

// beforeReading is called before each reader. Tests inject faults with it.
var beforeReading = func(inference) {}

// guest calls a reader. A panic or an error in it becomes a warning.
func guest(what inference, read func() error) (warnings []string) {
	err := errext.Recovered(func() error {
		beforeReading(what)
		return read()
	})
	if err == nil {
		return nil
	}
	return []string{fmt.Sprintf("%s is not known: %s", what, strings.Join(strings.Fields(err.Error()), " "))}
}
