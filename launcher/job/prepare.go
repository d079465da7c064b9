package job

import (
	"context"
	"errors"

	"github.com/gpurun/gpurun/launcher/environ"
	"github.com/gpurun/gpurun/launcher/gpu"
)

// A Machine is what a job is prepared on.
type Machine struct {
	// Environ is gpurun's own environment, in the form of os.Environ.
	Environ []string
	// NVML is the connection to the GPUs' driver, nil where nobody asks it. It is the
	// caller's to close; a prepared job does not hold it.
	NVML *gpu.Connection
	// Beside says that NVML comes up beside the ranks' start: it is waited for only
	// where the job needs to know what nothing else tells.
	Beside bool
	// Warnings are what people should know of the machine.
	Warnings []string
}

// Prepare answers every question about a job, and starts no rank. The steps are
// values of their own: what surrounds the job, what it resolves to, what its files
// say. An error that the user can mend carries a hint.
func Prepare(ctx context.Context, j *Job, m Machine) (*Prepared, error) {
	inspected, err := Inspect(ctx, j, m)
	if err != nil {
		return nil, err
	}
	resolved, err := Resolve(ctx, inspected)
	if err != nil {
		return nil, err
	}
	return Read(ctx, resolved)
}

// visible are the GPUs that a job would see.
func (m Machine) visible(j *Job, env environ.Vars) (gpu.View, error) {
	if m.Beside && j.Limits.DeviceMemory == 0 { // a ceiling is a share of the capacity
		if view, certain := gpu.Listed(env.Words()); certain {
			return view, nil
		}
	}
	nvml, err := m.NVML.NVML()
	view, failed := gpu.Visible(env.Words(), nvml)
	return view, errors.Join(err, failed)
}
