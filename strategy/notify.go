package strategy

import "time"

// Notify is the destination of a run's notifications, and selects among them. Zero: none are
// sent.
type Notify struct {
	// URL receives the events, and is a secret. It is empty if Command receives each event on its
	// stdin, or if Missing is set.
	URL     string
	Command []string
	Secret  string // signs each request; empty: none
	On      []string
	Timeout time.Duration // of each try, and of the command
	Missing string        // why nothing can be sent at present
}
