// Package errext adds an exit code and a hint to an error.
package errext

import (
	"errors"
	"fmt"
	"path"
	"runtime"
	"strings"
)

type hinted struct {
	error
	hint string
}

func (e *hinted) Unwrap() error { return e.error }

type coded struct {
	error
	code int
}

func (e *coded) Unwrap() error { return e.error }

// WithHint adds what the user can do about an error. A nil error stays nil. An empty hint changes nothing.
func WithHint(err error, hint string) error {
	if err == nil || hint == "" {
		return err
	}
	return &hinted{err, hint}
}

// WithCode adds the exit code with which gpurun ends because of an error. A nil error stays nil.
func WithCode(err error, code int) error {
	if err == nil {
		return nil
	}
	return &coded{err, code}
}

// Errorf makes an error with a hint.
func Errorf(hint, format string, args ...any) error {
	return WithHint(fmt.Errorf(format, args...), hint)
}

// Hint returns the outermost hint of an error, since the outer function knows more of the context. It is
// empty for none.
func Hint(err error) string {
	var h *hinted
	if errors.As(err, &h) {
		return h.hint
	}
	return ""
}

// Code returns the outermost exit code of an error, or otherwise if it has none.
func Code(err error, otherwise int) int {
	var c *coded
	if errors.As(err, &c) {
		return c.code
	}
	return otherwise
}

// Recovered calls f, and returns a panic in it as an error. It is for parsers of foreign text, which must not
// end the program.
func Recovered(f func() error) (err error) {
	defer func() {
		if bug := recover(); bug != nil {
			err = &panicked{bug, place()}
		}
	}()
	return f()
}

type panicked struct {
	value any
	place string
}

func (e *panicked) Error() string {
	return fmt.Sprintf("this is a bug in gpurun: %v%s", e.value, e.place)
}

// place returns the function of gpurun in which the panic that is being recovered began.
func place() string {
	callers := make([]uintptr, 32)
	frames := runtime.CallersFrames(callers[:runtime.Callers(3, callers)])
	for {
		frame, more := frames.Next()
		if name, own := strings.CutPrefix(frame.Function, "github.com/gpurun/gpurun/"); own {
			return fmt.Sprintf(" (in %s, %s:%d)", name, path.Base(frame.File), frame.Line)
		}
		if !more {
			return ""
		}
	}
}

// Panicked reports whether an error was a panic that Recovered caught.
func Panicked(err error) bool {
	var p *panicked
	return errors.As(err, &p)
}
