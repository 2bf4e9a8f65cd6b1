// The lines spoken with whoever started the supervisor: one JSON object per line, commands in, events and answers out.

package main

import (
	"encoding/json"
	"io"
	"sync"

	"nodeipam.io/tests/controlplane/oracle"
)

// command is one line of standard input. Which fields mean something depends on Cmd.
type command struct {
	ID  json.RawMessage `json:"id,omitempty"` // Echoed by the answer; without it a success is not answered.
	Cmd string          `json:"cmd"`

	Target string `json:"target,omitempty"` // stop, kill, start: etcd or apiserver.

	Folder   string `json:"folder,omitempty"`   // restore: a folder of etcd in place of the last backup.
	OnlyEtcd bool   `json:"onlyEtcd,omitempty"` // backup, restore: the API server is not started again.

	Rule string `json:"rule,omitempty"` // allow.
	Node string `json:"node,omitempty"` // allow, holds.
	CIDR string `json:"cidr,omitempty"` // allow.

	Releasing string `json:"releasing,omitempty"` // limit: as Go writes durations.

	Add    []string `json:"add,omitempty"`    // holds.
	Remove []string `json:"remove,omitempty"` // holds.

	Enabled *bool `json:"enabled,omitempty"` // gc.

	IPv4         bool   `json:"ipv4,omitempty"`         // renew.
	IPv6         bool   `json:"ipv6,omitempty"`         // renew.
	IPAM         string `json:"ipam,omitempty"`         // renew.
	CiliumConfig bool   `json:"ciliumConfig,omitempty"` // renew.

	Full *bool `json:"full,omitempty"` // space.

	BehindOracle bool `json:"behindOracle,omitempty"` // compact: before the oracle has read so far.
}

// answer is the answer to a command.
type answer struct {
	ID    json.RawMessage `json:"id,omitempty"`
	OK    bool            `json:"ok"`
	Error string          `json:"error,omitempty"`

	Revision int64 `json:"revision,omitempty"` // oracle, compact.
	*oracle.Report
}

// event is a line that nobody asked for.
type event struct {
	Event   string `json:"event"`
	Message string `json:"message,omitempty"` // progress, fatal, died.
	Target  string `json:"target,omitempty"`  // died.

	*readyEvent
	*oracle.Finding // violation.
}

type readyEvent struct {
	Server               string `json:"server"`
	Etcd                 string `json:"etcd"`
	AdminKubeconfig      string `json:"adminKubeconfig"`
	ControllerKubeconfig string `json:"controllerKubeconfig"`
	Version              string `json:"version"`
	EtcdPID              int    `json:"etcdPid"`
	ApiserverPID         int    `json:"apiserverPid"`
}

// voice writes whole lines from many goroutines.
type voice struct {
	mu sync.Mutex
	to *json.Encoder
}

func newVoice(to io.Writer) *voice {
	encoder := json.NewEncoder(to)
	encoder.SetEscapeHTML(false)
	return &voice{to: encoder}
}

func (v *voice) say(line any) {
	v.mu.Lock()
	defer v.mu.Unlock()
	// A failed write means that nobody listens any more; standard input will say so too.
	_ = v.to.Encode(line)
}

func (v *voice) progress(message string) {
	v.say(event{Event: "progress", Message: message})
}
