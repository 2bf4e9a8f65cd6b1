// Package suite holds the tests of Cilium's own BGP control plane: which of a node's CIDRs it announces, when they are
// CIDRs that a controller has written, and what must not be written to it.
//
// One run tests one release: BGP names it, as "1.19". The control plane of a node is the program build/bin/bgp-1.19, or
// the one that BGP_BIN names; the router that it talks to is build/bin/bgp-peer; the API server is the program that
// CONTROLPLANE_BIN names, with all CRDs of the release. What differs between the releases is in release_test.go.
//
// One test runs the controller of this project, target/debug/cilium-node-ipam or the one that CONTROLLER_BIN names, with
// build/bin/agent-1.17 as the IPAM side of the agents, or the one that IPAM_BIN names.
package suite
