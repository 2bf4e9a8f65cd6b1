// Events from Cilium's log; the lines themselves go to standard error as Cilium writes them.

package main

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/cilium/cilium/pkg/logging"
	"nodeipam.io/tests/agent/rig"
)

func forwardLogs(events *rig.Events) {
	logging.AddHandlers(eventHandler{events: events})
}

// eventHandler is a slog handler that knows events only.
type eventHandler struct {
	events *rig.Events
	attrs  []slog.Attr
}

func (h eventHandler) Enabled(_ context.Context, level slog.Level) bool {
	return level >= slog.LevelInfo
}

func (h eventHandler) Handle(_ context.Context, r slog.Record) error {
	details := map[string]string{}
	add := func(a slog.Attr) bool {
		details[a.Key] = fmt.Sprint(a.Value.Any())
		return true
	}
	for _, a := range h.attrs {
		add(a)
	}
	r.Attrs(add)
	if r.Level >= logging.LevelPanic {
		h.events.Fatal(r.Message, details)
	} else {
		h.events.Log(r.Message, details)
	}
	return nil
}

func (h eventHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	h.attrs = append(h.attrs[:len(h.attrs):len(h.attrs)], attrs...)
	return h
}

// WithGroup keeps the names of attributes flat: no line that becomes an event has a group.
func (h eventHandler) WithGroup(string) slog.Handler {
	return h
}
