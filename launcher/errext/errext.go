// Package errext lets an error carry what gpurun ends with: an exit code, and a
// hint at what to do, from where the error arises to where it is told.
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

// WithHint adds what the user can do about an error. A nil error stays nil, and so
// does an error without a hint stay as it is.
func WithHint(err error, hint string) error {
	if err == nil || hint == "" {
		return err
	}
	return &hinted{err, hint}
}

// WithCode adds the exit code that gpurun ends with for an error. A nil error stays nil.
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

// Hint is the outermost hint of an error: who adds one later knows more of what
// was being done. It is empty where there is none.
func Hint(err error) string {
	var h *hinted
	if errors.As(err, &h) {
		return h.hint
	}
	return ""
}

// Code is the outermost exit code of an error, and otherwise where it has none.
func Code(err error, otherwise int) int {
	var c *coded
	if errors.As(err, &c) {
		return c.code
	}
	return otherwise
}

// Recovered calls f and returns a panic in it as an error: for readers of foreign text that
// must not end what goes on around them.
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

// place is where the panic began that is being recovered, by gpurun's own function.
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
