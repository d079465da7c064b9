// Package strategy says why an attempt at training ended and what to do next.
//
// Facts go in, a decision comes out: Evidence puts the facts of one attempt
// together, the Detector says while it runs when its ranks have to be stopped,
// Diagnose says why it ended, and Decide turns the history of attempts into the
// next plan or a verdict. There is no clock, no file and no network in here: time and inventory
// are data that the caller gives, so that every decision can be replayed from a
// journal and tested without waiting.
package strategy
