// Package strategy determines why an attempt at training ended and what to do next.
//
// Facts go in, a decision comes out. Evidence collects the facts of one attempt. While the
// attempt runs, the Detector decides when its ranks have to be stopped. Diagnose returns why it
// ended, and Decide turns the history of attempts into the next plan or a verdict. The package
// uses no clock, no files and no network: the caller passes time and inventory as data, so that
// every decision can be replayed from a journal and tested without waiting.
package strategy
