package cause

import "fmt"

// DriverEventKind says what the GPU driver told of.
type DriverEventKind string

// What a driver tells of.
const (
	XIDEvent  DriverEventKind = "xid"  // an error that the driver gives a number
	ECCEvent  DriverEventKind = "ecc"  // memory that could not be corrected
	LostEvent DriverEventKind = "lost" // a GPU does not answer any more
)

// A DriverEvent is one critical event that the GPU driver told of.
type DriverEvent struct {
	Kind DriverEventKind `json:"kind"`
	XID  int             `json:"xid,omitempty"` // the number of an XIDEvent
	// Device is "cuda:1" as the job counts its devices, empty where the driver
	// does not say which it is.
	Device string `json:"device,omitempty"`
	UUID   string `json:"uuid,omitempty"` // "GPU-…" or "MIG-…", empty likewise
}

// Text says the event in a few words: "Xid 79 on GPU-…: the GPU has fallen off the bus".
func (e DriverEvent) Text() string {
	on := e.UUID
	if on == "" {
		on = "a GPU"
	}
	switch e.Kind {
	case ECCEvent:
		return "uncorrectable ECC error on " + on
	case LostEvent:
		return "the driver has lost " + on
	}
	text := fmt.Sprintf("Xid %d on %s", e.XID, on)
	if _, meaning := XID(e.XID); meaning != "" {
		text += ": " + meaning
	}
	return text
}

// Finding is what the event says about why an attempt ended. It is false for an
// event that says nothing about it: one that is not in the table, and one that
// follows the end of an application instead of bringing it about.
func (e DriverEvent) Finding() (Finding, bool) {
	s := Finding{Code: GPUHardware, Rank: -1, Device: e.Device, Text: e.Text()}
	if e.Kind == XIDEvent {
		s.Code, _ = XID(e.XID)
		if xids[e.XID].survivable {
			s.Weight = WeightWarning
		}
	}
	return s, s.Code != Unknown && s.Code != Preempted
}
