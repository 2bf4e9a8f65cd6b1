package rig

import "strings"

// Events turns log lines of Cilium into events of the protocol. Its code has no hooks for what it does at the start,
// but it logs each step.
type Events struct {
	out *output
}

// logEvents names the log lines that are reported, by their text. Releases share a line wherever it means the same.
var logEvents = map[string]string{
	"Successfully created CiliumNode resource":                          "created-ciliumnode",
	"Waiting for IPs to become available in CRD-backed allocation pool": "waiting",
	"All required IPs are available in CRD-backed allocation pool":      "pool-ready",
	"Unable to update CiliumNode resource, will retry":                  "update-failed",
	"Unable to create CiliumNode resource, will retry":                  "create-failed",
	"Unable to update CiliumNode custom resource":                       "status-update-failed",
	"Waiting for k8s node information":                                  "waiting",
	"Waiting for cidr pool to become available":                         "waiting",
	"Waiting for pod cidr pool to become available in stateDB":          "waiting-podippool",
	"Conflict when updating local CiliumNode resource, will retry":      "pools-update-failed",
	"Timer job failed":                                                       "pools-update-failed",
	"in-use pod CIDR was removed from spec":                                  "cidr-removed",
	"skipping too-small pod CIDR":                                            "cidr-refused",
	"ignoring invalid pod CIDR":                                              "cidr-refused",
	"ignoring duplicate pod CIDR":                                            "cidr-refused",
	"in-use CIDR was removed from spec":                                      "cidr-removed",
	"skipping too-small CIDR":                                                "cidr-refused",
	"ignoring invalid CIDR":                                                  "cidr-refused",
	"ignoring duplicate CIDR":                                                "cidr-refused",
	"Unable to restore router IP from filesystem":                            "router-not-restored",
	"Unable to restore router IP from kubernetes":                            "router-not-restored",
	"unable to re-allocate health IPv4, a new health IPv4 will be allocated": "health-not-restored",
	"unable to re-allocate health IPv6, a new health IPv6 will be allocated": "health-not-restored",
	"unable to re-allocate ingress IPv4.":                                    "ingress-not-restored",
	"unable to re-allocate ingress IPv6.":                                    "ingress-not-restored",
}

// logBeginnings names the log lines that are reported, by how they begin: the rest names a pool.
var logBeginnings = map[string]string{
	"Waiting for ipv4 pod CIDR pool ": "waiting",
	"Waiting for ipv6 pod CIDR pool ": "waiting",
}

// Log reports the line if it is one of those that are reported.
func (e *Events) Log(message string, details map[string]string) {
	name, known := logEvents[message]
	for beginning, other := range logBeginnings {
		if strings.HasPrefix(message, beginning) {
			name, known = other, true
		}
	}
	if known {
		e.out.write(Event{Event: name, Message: message, Details: details})
	}
}

// Fatal reports the last line of a process that Cilium's own code ends: it logs at this level, then exits.
func (e *Events) Fatal(message string, details map[string]string) {
	e.out.write(Event{Event: "fatal", Message: message, Details: details})
}
