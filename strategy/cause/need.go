package cause

// A Need is what has to be done before a job can be started again on a GPU of which the
// driver told something.
type Need string

// The needs, the least first. An event without one says nothing about that.
const (
	// Restart: the job ended, the GPU and its node go on.
	Restart Need = "restart"
	// ResetUnlessContained: as Reset, unless the driver also says that the error was kept
	// from all but one application.
	ResetUnlessContained Need = "reset-unless-contained"
	Check                Need = "check"  // by somebody: nobody knows what helps
	Reset                Need = "reset"  // of the GPU
	Reboot               Need = "reboot" // of the node
)

// Worse reports whether more has to be done than for the other need.
func (n Need) Worse(than Need) bool { return n.degree() > than.degree() }

func (n Need) degree() int {
	switch n {
	case Restart:
		return 1
	case ResetUnlessContained:
		return 2
	case Check:
		return 3
	case Reset:
		return 4
	case Reboot:
		return 5
	}
	return 0
}

// A RecoveryAction is what the driver itself says that a GPU needs
// (nvmlDeviceGpuRecoveryAction_t in nvml.h). It is empty for nothing.
type RecoveryAction string

// The recovery actions. To drain is to let no new work begin: between GPUs, or on this one,
// which is reset afterwards.
const (
	RecoverByReset         RecoveryAction = "gpu-reset"
	RecoverByReboot        RecoveryAction = "node-reboot"
	RecoverByDrainP2P      RecoveryAction = "drain-p2p"
	RecoverByDrainAndReset RecoveryAction = "drain-and-reset"
)

// Text says in a few words what is needed; empty for nothing.
func (r RecoveryAction) Text() string {
	switch r {
	case "":
		return ""
	case RecoverByReset:
		return "the driver asks for a reset of the GPU"
	case RecoverByReboot:
		return "the driver asks for a restart of the node"
	case RecoverByDrainP2P:
		return "the driver asks that no work between GPUs is begun"
	case RecoverByDrainAndReset:
		return "the driver asks that no work is begun before a reset of the GPU"
	}
	return "the driver asks for " + string(r)
}

// need is what has to be done before a job is started on the GPU.
func (r RecoveryAction) need() Need {
	switch r {
	case "":
		return ""
	case RecoverByReboot:
		return Reboot
	}
	return Reset
}

// ends reports whether the driver lets no application go on.
func (r RecoveryAction) ends() bool { return r == RecoverByReset || r == RecoverByReboot }
