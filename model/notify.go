package model

import "time"

// Notify is where gpurun sends notifications of a run, and which. Zero: nowhere.
type Notify struct {
	// URL receives the events, and is a secret. It is empty where Command receives each event on
	// its stdin, or Missing says why there is none.
	URL     string
	Command []string
	Style   string // "json", "slack", "discord" or "teams"
	Secret  string // signs what is posted; empty for none
	On      []string
	Timeout time.Duration // of each try, and of the command
	Missing string        // why nothing can be sent at present
}
