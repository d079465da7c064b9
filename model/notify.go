package model

import "time"

// Notify is whom gpurun tells of a run, and of what. It is zero where it tells nobody.
type Notify struct {
	// URL is where events are posted, a secret as a whole. It is empty where there is a
	// Command, which gets each event on its stdin, or Missing says why.
	URL     string
	Command []string
	Style   string // "json", "slack", "discord" or "teams"
	Secret  string // signs what is posted; empty for none
	On      []string
	// Timeout bounds each try, and the command.
	Timeout time.Duration
	// Missing is why nobody can be told at present; empty where somebody can.
	Missing string
}
