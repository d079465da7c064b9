package node

import (
	"io"
	"os"

	"golang.org/x/sys/unix"
	"golang.org/x/term"

	"github.com/gpurun/gpurun/launcher/ranks"
)

// openOutput opens the files and pipes of an attempt's output.
func (n *Node) openOutput(a *attempt) (*ranks.Output, error) {
	o, terminal := n.opts.Output.OutputOptions, n.opts.Output.isTerminal()
	o.Ranks, o.Dir, o.Restarts, o.OnFact = a.ranks(), a.dir, a.n, a.emit
	o.Template, _ = n.opts.Env.Lookup("TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE")
	mode := n.opts.Output.TTY
	o.TTY = a.local == 1 && (mode == "always" || mode == "auto" && terminal)
	return ranks.OpenOutput(o)
}

// isTerminal reports whether both streams of the console are terminals.
func (c Console) isTerminal() bool {
	for _, w := range []io.Writer{c.Stdout, c.Stderr} {
		if f, ok := w.(*os.File); !ok || !term.IsTerminal(int(f.Fd())) {
			return false
		}
	}
	return true
}

// stdin returns the stdin of rank 0: gpurun's own, unless gpurun runs in the background of a terminal. A rank
// has no controlling terminal, so SIGTTIN would not stop it, and it would read input that is typed for the
// shell.
func (c Console) stdin() *os.File {
	front, err := unix.IoctlGetInt(int(c.Stdin.Fd()), unix.TIOCGPGRP)
	if err == nil && front != unix.Getpgrp() {
		return nil
	}
	return c.Stdin
}
