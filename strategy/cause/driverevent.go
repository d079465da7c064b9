package cause

import (
	"cmp"
	"fmt"
)

// A DriverEventKind is a kind of event of the GPU driver.
type DriverEventKind string

const (
	XIDEvent      DriverEventKind = "xid"      // an error that the driver gives a number
	ECCEvent      DriverEventKind = "ecc"      // memory that could not be corrected
	LostEvent     DriverEventKind = "lost"     // a GPU does not answer any more
	RecoveryEvent DriverEventKind = "recovery" // a GPU needs something, such as a reset
	UnfitEvent    DriverEventKind = "unfit"    // a GPU that was found broken before training began
)

// A DriverEvent is one critical event of the GPU driver, or a fault of a GPU that was found
// before ranks trained on it.
type DriverEvent struct {
	Kind DriverEventKind `json:"kind"`
	XID  int             `json:"xid,omitempty"` // the number of an XIDEvent
	// Device is "cuda:1" as the job counts its devices, empty where the driver
	// does not say which it is.
	Device string `json:"device,omitempty"`
	UUID   string `json:"uuid,omitempty"` // "GPU-…" or "MIG-…", empty likewise
	// Recovery is what the GPU of a RecoveryEvent or an UnfitEvent needs, where that is known.
	Recovery RecoveryAction `json:"recovery,omitempty"`
	// Fault describes an UnfitEvent in a few words; Index is NVML's number of that GPU, and
	// Bus its place on the PCI bus, "00000000:4B:00.0", empty where the driver does not say.
	Fault string `json:"fault,omitempty"`
	Index int    `json:"index,omitempty"`
	Bus   string `json:"bus,omitempty"`
	// Node is the host that has the GPU, empty for the one that decides.
	Node string `json:"node,omitempty"`
}

// Text says the event in a few words: "Xid 79 on GPU-…: the GPU has fallen off the bus".
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

// unfit names the device in all ways by which people look for one.
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

// Need is what has to be done before the GPU is used again; empty where the event does not say.
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

// Finding is the finding of an event, false where the event is no reason why an attempt
// ended: it is not in the table, or follows the end of an application.
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
