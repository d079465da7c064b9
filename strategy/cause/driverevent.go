package cause

import (
	"cmp"
	"fmt"
	"slices"
)

// A DriverEventKind is a kind of event of the GPU driver.
type DriverEventKind string

const (
	XIDEvent      DriverEventKind = "xid"      // an error with a number of the driver
	ECCEvent      DriverEventKind = "ecc"      // memory that could not be corrected
	LostEvent     DriverEventKind = "lost"     // a GPU no longer answers
	RecoveryEvent DriverEventKind = "recovery" // a GPU needs an action, such as a reset
	UnfitEvent    DriverEventKind = "unfit"    // a GPU that was found broken before training began
)

// A DriverEvent is one critical event of the GPU driver, or a fault of a GPU that was found
// before ranks trained on it.
type DriverEvent struct {
	Kind DriverEventKind `json:"kind"`
	XID  int             `json:"xid,omitempty"` // the number of an XIDEvent
	// Device is "cuda:1" in the job's numbering; empty if the driver does not report it.
	Device string `json:"device,omitempty"`
	UUID   string `json:"uuid,omitempty"` // "GPU-…" or "MIG-…", empty likewise
	// Recovery is the action that the GPU of a RecoveryEvent or an UnfitEvent needs, if it is
	// known.
	Recovery RecoveryAction `json:"recovery,omitempty"`
	// Fault describes an UnfitEvent in a few words. Index is NVML's number of that GPU, and Bus
	// its address on the PCI bus, "00000000:4B:00.0"; empty if the driver does not report it.
	Fault string `json:"fault,omitempty"`
	Index int    `json:"index,omitempty"`
	Bus   string `json:"bus,omitempty"`
	// Node is the host of the GPU; empty: the deciding node.
	Node string `json:"node,omitempty"`
}

// Text describes the event in a few words: "Xid 79 on GPU-…: the GPU has fallen off the bus".
func (e DriverEvent) Text() string {
	if node := e.Node; node != "" {
		e.Node = ""
		return e.Text() + " (" + node + ")"
	}
	on := cmp.Or(e.UUID, "a GPU")
	switch e.Kind {
	case ECCEvent:
		return "uncorrectable ECC error on " + on
	case LostEvent:
		return "the driver has lost " + on
	case RecoveryEvent:
		return e.Recovery.Text() + ", " + on
	case UnfitEvent:
		return e.unfit()
	}
	text := fmt.Sprintf("Xid %d on %s", e.XID, on)
	if _, meaning := XID(e.XID); meaning != "" {
		text += ": " + meaning
	}
	return text
}

// unfit names the device in all ways in which people search for one.
func (e DriverEvent) unfit() string {
	switch {
	case e.UUID != "":
	case e.Device != "":
		return e.Device + ": " + e.Fault
	default:
		return e.Fault
	}
	where := fmt.Sprintf("%s, index %d", e.UUID, e.Index)
	if e.Bus != "" {
		where += ", PCI " + e.Bus
	}
	return fmt.Sprintf("%s (%s): %s", e.Device, where, e.Fault)
}

// Need is the action that is required before the GPU is used again; empty if the event does not
// show it.
func (e DriverEvent) Need() Need {
	switch e.Kind {
	case XIDEvent:
		return xids[e.XID].need
	case ECCEvent:
		return ResetUnlessContained
	case RecoveryEvent:
		return e.Recovery.need()
	case LostEvent:
		return Reboot
	case UnfitEvent:
		if e.Recovery == "" {
			return Check
		}
		return e.Recovery.need()
	}
	return ""
}

// Finding is the finding of an event; false if the event does not end an attempt: it is not in
// the table, or follows the end of an application.
func (e DriverEvent) Finding() (Finding, bool) {
	s := Finding{Code: GPUHardware, Rank: -1, Device: e.Device, Text: e.Text()}
	switch e.Kind {
	case XIDEvent:
		s.Code, _ = XID(e.XID)
		if xids[e.XID].survivable {
			s.Weight = WeightWarning
		}
	case RecoveryEvent:
		if !recoveryActions[e.Recovery].ends {
			s.Weight = WeightWarning
		}
	}
	return s, s.Code != Unknown && s.Code != Preempted
}

// A Need is the action that is required before a job can be started again on a GPU after an event
// of its driver. It is empty if the event does not show it.
type Need string

const (
	// Restart: the job ended; the GPU and its node continue.
	Restart Need = "restart"
	// ResetUnlessContained: as Reset, unless the driver also reports that the error was contained
	// to one application.
	ResetUnlessContained Need = "reset-unless-contained"
	Check                Need = "check"  // by a person: the remedy is not known
	Reset                Need = "reset"  // of the GPU
	Reboot               Need = "reboot" // of the node
)

// needs lists the needs, the least first.
var needs = []Need{Restart, ResetUnlessContained, Check, Reset, Reboot}

// Worse reports whether the need requires more than the other one.
func (n Need) Worse(than Need) bool { return slices.Index(needs, n) > slices.Index(needs, than) }

// A RecoveryAction is the action that the driver itself recommends for a GPU
// (nvmlDeviceGpuRecoveryAction_t in nvml.h). It is empty for none.
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
	RecoverByDrainP2P:      {"the driver requests that no new work between GPUs starts", Reset, false},
	RecoverByDrainAndReset: {"the driver requests that no new work starts before a reset of the GPU", Reset, false},
}

// Text describes the action in a few words; empty: none.
func (r RecoveryAction) Text() string {
	if action, known := recoveryActions[r]; known {
		return action.text
	}
	return "the driver asks for " + string(r)
}

// need is the action that is required before a job is started on the GPU.
func (r RecoveryAction) need() Need {
	if action, known := recoveryActions[r]; known {
		return action.need
	}
	return Reset
}

// xids are the Xid events that end a job, or after which its GPU should not be used any more, by
// NVIDIA's catalogue: https://docs.nvidia.com/deploy/xid-errors/analyzing-xid-catalog.html. The
// need is its immediate action: RESTART_APP, RESET_GPU, RESTART_BM (the node). Events of older
// GPUs are in https://docs.nvidia.com/deploy/xid-errors/. Any other event proves nothing.
var xids = map[int]struct {
	code Code
	text string
	need Need
	// survivable: the event concerns the GPU's state; applications continue after it.
	survivable bool
}{
	// Caused by the job itself.
	13:  {code: IllegalAccess, text: "graphics engine exception: a kernel accessed memory out of range"},
	31:  {code: IllegalAccess, text: "GPU memory page fault: a kernel accessed an illegal address"},
	43:  {code: IllegalAccess, text: "GPU stopped processing: a user application hit a software error"},
	45:  {code: Preempted, text: "preemptive cleanup: the application was ended"},
	137: {code: IllegalAccess, text: "NVLink privilege error: a kernel accessed an illegal address of another GPU"},
	// Memory. A contained error is also reported as an uncorrectable one (48, 171, 172).
	48:  {code: GPUHardware, text: "double bit ECC error", need: ResetUnlessContained},
	63:  {code: GPUHardware, text: "row remapping or page retirement was recorded", survivable: true},
	64:  {code: GPUHardware, text: "row remapping or page retirement failed", need: Reset, survivable: true},
	92:  {code: GPUHardware, text: "high single bit ECC error rate", survivable: true},
	94:  {code: GPUHardware, text: "contained ECC error", need: Restart},
	95:  {code: GPUHardware, text: "uncontained ECC error", need: Reset},
	140: {code: GPUHardware, text: "unrecovered ECC error", need: Reset},
	156: {code: GPUHardware, text: "a part of the GPU is to be retired", need: Reset, survivable: true},
	157: {code: GPUHardware, text: "a part of the GPU could not be retired", survivable: true},
	171: {code: GPUHardware, text: "uncorrectable error of the GPU's DRAM", need: ResetUnlessContained},
	172: {code: GPUHardware, text: "uncorrectable error of the GPU's SRAM", need: ResetUnlessContained},
	// NVLink. From the fifth generation on, 144 to 150, the severity depends on a code that NVML
	// does not have; the driver's recovery action shows it.
	74:  {code: GPUHardware, text: "NVLink error", need: Reset},
	136: {code: GPUHardware, text: "link training failed", need: Reset},
	144: {code: GPUHardware, text: "NVLink SAW error", survivable: true},
	145: {code: GPUHardware, text: "NVLink RLW error"},
	146: {code: GPUHardware, text: "NVLink TLW error", survivable: true},
	147: {code: GPUHardware, text: "NVLink TREX error", survivable: true},
	148: {code: GPUHardware, text: "NVLink NVLPW_CTRL error", survivable: true},
	149: {code: GPUHardware, text: "NVLink NETIR error"},
	150: {code: GPUHardware, text: "NVLink MSE error", survivable: true},
	// The GPU as a whole.
	46:  {code: GPUHardware, text: "the GPU stopped processing", need: Reset},
	61:  {code: GPUHardware, text: "internal micro-controller breakpoint", need: Reset},
	62:  {code: GPUHardware, text: "internal micro-controller halt", need: Reset},
	79:  {code: GPUHardware, text: "the GPU has fallen off the bus", need: Reboot},
	109: {code: GPUHardware, text: "context switch timeout", need: Reset},
	110: {code: GPUHardware, text: "security fault", need: Reset},
	119: {code: GPUHardware, text: "the GPU's system processor (GSP) timed out", need: Reset},
	120: {code: GPUHardware, text: "error in the GPU's system processor (GSP)", need: Reset},
	143: {code: GPUHardware, text: "GPU initialisation error", need: Reset},
	151: {code: GPUHardware, text: "key rotation error", need: Reboot},
	154: {code: GPUHardware, text: "GPU recovery action changed: the GPU needs a reset", need: Reset, survivable: true},
	158: {code: GPUHardware, text: "fatal timeout of the GPU", need: Reset},
	167: {code: GPUHardware, text: "fatal timeout on the PCI bus", need: Reboot},
}

// XID returns the meaning of an Xid event for a job that ran on the GPU. The code is Unknown for
// an event that proves nothing.
func XID(n int) (Code, string) {
	if x, ok := xids[n]; ok {
		return x.code, x.text
	}
	return Unknown, ""
}
