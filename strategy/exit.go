package strategy

// The signals that say something about a cause.
const (
	sigHUP  = 1
	sigINT  = 2
	sigILL  = 4
	sigTRAP = 5
	sigABRT = 6
	sigBUS  = 7
	sigFPE  = 8
	sigKILL = 9
	sigSEGV = 11
	sigPIPE = 13
	sigALRM = 14
	sigTERM = 15
	sigXCPU = 24
	sigXFSZ = 25
	sigSYS  = 31
)

// failed reports whether a rank ended badly by itself.
func failed(e *Exit) bool { return !e.Stopped && (e.Code != 0 || signalOf(e) != 0) }

// signalOf returns the signal that ended a process, also where a shell between
// the process and its observer turned it into an exit code: of the standard signals,
// since a code such as 160 or 255 is more often a program's own.
func signalOf(e *Exit) int {
	if e.Signal == 0 && e.Code > 128 && e.Code <= 128+sigSYS {
		return e.Code - 128
	}
	return e.Signal
}
