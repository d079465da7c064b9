package cause

import "slices"

// A Need is what has to be done before a job can be started again on a GPU after an event of
// its driver. It is empty where the event does not say.
type Need string

const (
	// Restart: the job ended, the GPU and its node continue.
	Restart Need = "restart"
	// ResetUnlessContained: as Reset, unless the driver also reports that the error was kept
	// from all but one application.
	ResetUnlessContained Need = "reset-unless-contained"
	Check                Need = "check"  // by a person: what helps is not known
	Reset                Need = "reset"  // of the GPU
	Reboot               Need = "reboot" // of the node
)

// needs are the least first.
var needs = []Need{Restart, ResetUnlessContained, Check, Reset, Reboot}

// Worse reports whether more has to be done than for the other need.
func (n Need) Worse(than Need) bool { return slices.Index(needs, n) > slices.Index(needs, than) }

// A RecoveryAction is what the driver itself says that a GPU needs
// (nvmlDeviceGpuRecoveryAction_t in nvml.h). It is empty for nothing.
type RecoveryAction string

// To drain is to let no new work begin: between GPUs, or on this one, which is reset afterwards.
const (
	RecoverByReset         RecoveryAction = "gpu-reset"
	RecoverByReboot        RecoveryAction = "node-reboot"
	RecoverByDrainP2P      RecoveryAction = "drain-p2p"
	RecoverByDrainAndReset RecoveryAction = "drain-and-reset"
)

var recoveryActions = map[RecoveryAction]struct {
	text string
	need Need
	ends bool // the driver lets no application continue
}{
	"":                     {},
	RecoverByReset:         {"the driver asks for a reset of the GPU", Reset, true},
	RecoverByReboot:        {"the driver asks for a restart of the node", Reboot, true},
	RecoverByDrainP2P:      {"the driver asks that no work between GPUs is begun", Reset, false},
	RecoverByDrainAndReset: {"the driver asks that no work is begun before a reset of the GPU", Reset, false},
}

// Text says in a few words what is needed; empty for nothing.
func (r RecoveryAction) Text() string {
	if action, known := recoveryActions[r]; known {
		return action.text
	}
	return "the driver asks for " + string(r)
}

// need is what has to be done before a job is started on the GPU.
func (r RecoveryAction) need() Need {
	if action, known := recoveryActions[r]; known {
		return action.need
	}
	return Reset
}
