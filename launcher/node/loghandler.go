package node

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
)

// A logHandler is a slog.Handler that makes notices of what a package reports.
type logHandler struct{ log *EventLog }

// Enabled is true from warnings on.
func (h logHandler) Enabled(_ context.Context, level slog.Level) bool { return level >= slog.LevelWarn }

// Handle makes one notice of a record.
func (h logHandler) Handle(_ context.Context, r slog.Record) error {
	var b strings.Builder
	b.WriteString("warning: " + r.Message)
	r.Attrs(func(a slog.Attr) bool {
		fmt.Fprintf(&b, ", %s %v", a.Key, a.Value)
		return true
	})
	h.log.Note(b.String())
	return nil
}

// WithAttrs and WithGroup are not needed by what reports here.
func (h logHandler) WithAttrs([]slog.Attr) slog.Handler { return h }

// WithGroup returns the handler itself.
func (h logHandler) WithGroup(string) slog.Handler { return h }
