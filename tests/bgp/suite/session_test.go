// What becomes of routes when the session ends: at once, late, or not for a while.

package suite

import (
	"syscall"
	"testing"
)

// A process that stands still keeps its session until the hold time ends. Meanwhile its CIDR has left it.
func TestPoolsHungAgentIsWithdrawnAfterTheHoldTime(t *testing.T) {
	s := newScene(t, multiPool)
	s.setPeers(object{"timers": object{"connectRetryTimeSeconds": 1, "holdTimeSeconds": 6, "keepAliveTimeSeconds": 2}})
	s.createPool("web", ipv4("10.1.0.0/16", 24))
	a, b := s.newNode("a"), s.newNode("b")
	a.start()
	b.start()
	a.allocate(s.in("web", "10.1.0.0/24", "10.1.1.0/24"))
	b.allocate(s.in("web", "10.1.2.0/24"))
	s.awaitRoutes("10.1.0.0/24 a", "10.1.1.0/24 a", "10.1.2.0/24 b")

	a.agent.signal(syscall.SIGSTOP)
	a.allocate(s.in("web", "10.1.1.0/24"))
	b.settle()
	s.awaitRoutes("10.1.0.0/24 a", "10.1.1.0/24 a", "10.1.2.0/24 b")
	// The hold time has ended.
	s.awaitRoutes("10.1.2.0/24 b")
	b.allocate(s.in("web", "10.1.0.0/24", "10.1.2.0/24"))
	s.awaitRoutes("10.1.0.0/24 b", "10.1.2.0/24 b")

	a.agent.signal(syscall.SIGCONT)
	s.awaitRoutes("10.1.0.0/24 b", "10.1.1.0/24 a", "10.1.2.0/24 b")
}

// With graceful restart the router keeps the routes of an agent that restarts.
func TestPoolsGracefulRestart(t *testing.T) {
	s := newScene(t, multiPool)
	s.setPeers(object{"gracefulRestart": object{"enabled": true, "restartTimeSeconds": 30}})
	s.createPool("web", ipv4("10.1.0.0/16", 24))
	n := s.newNode("a")
	n.start()
	n.allocate(s.in("web", "10.1.0.0/24", "10.1.1.0/24"))
	s.awaitRoutes("10.1.0.0/24 a", "10.1.1.0/24 a")
	from := s.router.now()

	n.agent.kill()
	n.awaitSession(false)
	s.awaitRoutes("10.1.0.0/24 a", "10.1.1.0/24 a")
	// What changes meanwhile is announced and withdrawn after the start.
	n.allocate(s.in("web", "10.1.0.0/24", "10.1.2.0/24"))
	n.start()
	s.awaitRoutes("10.1.0.0/24 a", "10.1.2.0/24 a")
	n.settle()
	s.awaitBest(from, canary, route{})
	for _, change := range s.router.since(from, "10.1.0.0/24") {
		if change.NextHop == "" {
			t.Errorf("the CIDR that stayed was withdrawn: %+v", s.router.since(from, "10.1.0.0/24"))
		}
	}
}

// An agent that does not come back loses its routes when the restart time ends.
func TestPoolsGracefulRestartEnds(t *testing.T) {
	s := newScene(t, multiPool)
	s.setPeers(object{"gracefulRestart": object{"enabled": true, "restartTimeSeconds": 5}})
	s.createPool("web", ipv4("10.1.0.0/16", 24))
	n := s.newNode("a")
	n.start()
	n.allocate(s.in("web", "10.1.0.0/24"))
	s.awaitRoutes("10.1.0.0/24 a")
	n.agent.kill()
	n.awaitSession(false)
	s.awaitRoutes("10.1.0.0/24 a")
	s.awaitRoutes()
}

// setPeers changes how the nodes of this scene talk to the router.
func (s *scene) setPeers(change object) {
	s.t.Helper()
	s.patch(bgpObject("CiliumBGPPeerConfig", "ciliumbgppeerconfigs"), s.name, object{"spec": change})
}
