// Events from Cilium's log. Its code has no hooks for what it does at the start, but it logs each step; the release is
// pinned, so the texts are too. All ours; the lines themselves go to standard error as Cilium writes them.

package main

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/cilium/cilium/pkg/logging"
)

// logEvents names the log lines that are reported, by their text in the pinned release.
var logEvents = map[string]string{
	"Successfully created CiliumNode resource":                               "created-ciliumnode",
	"Waiting for IPs to become available in CRD-backed allocation pool":      "waiting",
	"All required IPs are available in CRD-backed allocation pool":           "pool-ready",
	"Unable to update CiliumNode resource, will retry":                       "update-failed",
	"Unable to create CiliumNode resource, will retry":                       "create-failed",
	"Unable to update CiliumNode custom resource":                            "status-update-failed",
	"Unable to restore router IP from filesystem":                            "router-not-restored",
	"Unable to restore router IP from kubernetes":                            "router-not-restored",
	"unable to re-allocate health IPv4, a new health IPv4 will be allocated": "health-not-restored",
	"unable to re-allocate health IPv6, a new health IPv6 will be allocated": "health-not-restored",
	"unable to re-allocate ingress IPv4.":                                    "ingress-not-restored",
	"unable to re-allocate ingress IPv6.":                                    "ingress-not-restored",
}

// fatalEvent is the last line of a process that Cilium's own code ends: it logs at this level, then exits.
const fatalEvent = "fatal"

// forwardLogs reports the lines of logEvents, and every fatal one, to out.
func forwardLogs(out *answers) {
	logging.AddHandlers(eventHandler{out: out})
}

// eventHandler is a slog handler that knows events only.
type eventHandler struct {
	out   *answers
	attrs []slog.Attr
}

func (h eventHandler) Enabled(_ context.Context, level slog.Level) bool {
	return level >= slog.LevelInfo
}

func (h eventHandler) Handle(_ context.Context, r slog.Record) error {
	name, known := logEvents[r.Message]
	switch {
	case r.Level >= logging.LevelPanic:
		name = fatalEvent
	case !known:
		return nil
	}
	details := map[string]any{}
	add := func(a slog.Attr) bool {
		details[a.Key] = fmt.Sprint(a.Value.Any())
		return true
	}
	for _, a := range h.attrs {
		add(a)
	}
	r.Attrs(add)
	h.out.write(event{Event: name, Message: r.Message, Details: details})
	return nil
}

func (h eventHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	h.attrs = append(h.attrs[:len(h.attrs):len(h.attrs)], attrs...)
	return h
}

// WithGroup keeps the names of attributes flat: no line of logEvents has a group.
func (h eventHandler) WithGroup(string) slog.Handler {
	return h
}
