package node

import (
	"os"

	"golang.org/x/sys/unix"
	"golang.org/x/term"

	"github.com/gpurun/gpurun/launcher/output"
)

// openOutput opens the files and the pipes for what an attempt's ranks write.
func (n *Node) openOutput(a *attempt) (*output.Output, error) {
	o := n.opts.Output
	template, _ := n.opts.Env.Lookup("TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE")
	return output.Open(output.Options{
		Ranks: a.ranks(), Dir: a.dir, Stdout: o.Stdout, Stderr: o.Stderr, Screen: o.Screen,
		Redirect: o.Redirect, Tee: o.Tee, Filter: o.Filter, Role: o.Role, Template: template, Restarts: a.n,
		Fold: o.isTerminal(), Mask: o.Mask, TTY: a.local == 1 && o.wantsTTY(), Step: o.Step, OnFact: a.emit, Observe: o.Observe, MaxBytes: o.MaxBytes,
	})
}

// wantsTTY reports whether a rank that is alone gets a pseudo-terminal.
func (o Output) wantsTTY() bool {
	switch o.TTY {
	case "always":
		return true
	case "auto":
		return o.isTerminal()
	}
	return false
}

// isTerminal reports whether somebody looks at what the ranks print.
func (o Output) isTerminal() bool {
	return term.IsTerminal(int(o.Stdout.Fd())) && term.IsTerminal(int(o.Stderr.Fd()))
}

// stdin is what rank 0 reads: gpurun's own stdin, unless gpurun runs in the
// background of a terminal. There a rank, which has no controlling terminal and
// so is not stopped by SIGTTIN, would take what is typed for the shell.
func (o Output) stdin() *os.File {
	front, err := unix.IoctlGetInt(int(o.Stdin.Fd()), unix.TIOCGPGRP)
	if err == nil && front != unix.Getpgrp() {
		return nil
	}
	return o.Stdin
}
