// Package memory says how many bytes and how much time a plan of a training job needs,
// calibrated by what processes of that job measured, and chooses among plans.
//
// A peak is the largest of a few instants (the end of the forward, the backward, the
// optimizer's step), never a sum of all that is ever held. Everything in here is data in
// and data out: no clock, no file, no process.
package memory
