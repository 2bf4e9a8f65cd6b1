// Package suite holds the tests of the agents: what docs/cilium.md says of Cilium, run on the agent of each release.
//
// One run tests one release: AGENT names it, as "1.20". The agent is the program build/bin/agent-1.20, or the one that
// AGENT_BIN names; the API server is the program that CONTROLPLANE_BIN names. It has the CiliumNode CRD of the agent's
// own release, or of the release that AGENT_CRDS names: while a cluster is upgraded, the newer operator has installed
// its CRDs already, and the older agents still run.
package suite
