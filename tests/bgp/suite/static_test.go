// The modes in which a node has podCIDRs, and the mode in which Cilium announces none.

package suite

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestPodCIDRsAreAnnounced(t *testing.T) {
	for _, mode := range []string{clusterPool, kubernetesMode} {
		t.Run(mode, func(t *testing.T) {
			s := newScene(t, mode)
			a, b := s.newNode("a"), s.newNode("b")
			a.assign("10.1.0.0/24", "fd00:1::/120")
			a.start()
			b.start()
			s.awaitRoutes("10.1.0.0/24 a", "fd00:1::/120 a")
			b.assign("10.1.1.0/24")
			s.awaitRoutes("10.1.0.0/24 a", "10.1.1.0/24 b", "fd00:1::/120 a")
			from := s.router.now()

			// All of them, whatever their sizes, and whichever the agent uses.
			a.assign("10.1.0.0/24", "10.2.0.0/26", "fd00:1::/120")
			s.awaitRoutes("10.1.0.0/24 a", "10.1.1.0/24 b", "10.2.0.0/26 a", "fd00:1::/120 a")
			a.assign("10.1.0.0/24", "fd00:1::/120")
			s.awaitRoutes("10.1.0.0/24 a", "10.1.1.0/24 b", "fd00:1::/120 a")

			b.agent.kill()
			s.awaitRoutes("10.1.0.0/24 a", "fd00:1::/120 a")
			b.start()
			s.awaitRoutes("10.1.0.0/24 a", "10.1.1.0/24 b", "fd00:1::/120 a")
			a.settle()
			s.awaitBest(from, canary, route{})
			if changes := s.router.since(from, "10.1.0.0/24"); len(changes) > 0 {
				t.Errorf("the CIDR that stayed was touched: %+v", changes)
			}

			a.deleteCiliumNode()
			b.deleteCiliumNode()
			b.createCiliumNode()
			// One that is deleted is still announced, as the other shows: that one has heard of more since.
			s.awaitRoutes("10.1.0.0/24 a", "fd00:1::/120 a")
		})
	}
}

func TestHostBitsOfAPodCIDRAreMasked(t *testing.T) {
	s := newScene(t, clusterPool)
	n := s.newNode("a")
	n.assign("10.1.0.77/24")
	n.start()
	s.awaitRoutes("10.1.0.0/24 a")
}

// Entries of allocated mean nothing outside mode multi-pool.
func TestClusterPoolAnnouncesNoPools(t *testing.T) {
	s := newScene(t, clusterPool)
	s.createPool("web", ipv4("10.2.0.0/16", 24))
	n := s.newNode("a")
	n.start()
	if err := n.write(ipam{podCIDRs: []string{"10.1.0.0/24"}, pools: []entry{s.in("web", "10.2.0.0/24")}}); err != nil {
		t.Fatal(err)
	}
	s.awaitRoutes("10.1.0.0/24 a")
	n.settle()
	s.awaitRoutes("10.1.0.0/24 a")
}

// In mode crd BGP is at work, as the address of a Service shows, and announces nothing of the CiliumNode.
func TestCRDModeAnnouncesNoPods(t *testing.T) {
	s := newScene(t, crdMode)
	s.createPool("web", ipv4("10.2.0.0/16", 24))
	n := s.newNode("a")
	if err := n.write(ipam{podCIDRs: []string{"10.1.0.0/24"}, pools: []entry{s.in("web", "10.2.0.0/24")}}); err != nil {
		t.Fatal(err)
	}
	n.start()
	n.awaitSaid("Unsupported IPAM mode, disabling PodCIDR advertisements", 1)
	n.awaitSession(true)
	for _, address := range []string{"192.0.2.1", "192.0.2.2"} {
		s.createService(address)
		n.awaitAnnounced(address+"/32", true)
	}
	s.awaitRoutes("192.0.2.1/32 a", "192.0.2.2/32 a")
}

// createService makes a Service that has this address for the world outside.
func (s *scene) createService(address string) {
	s.t.Helper()
	services := s.kube.CoreV1().Services(metav1.NamespaceDefault)
	created, err := services.Create(s.t.Context(), &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{GenerateName: s.name + "-", Labels: map[string]string{advertised: s.name}},
		Spec: corev1.ServiceSpec{
			Type:  corev1.ServiceTypeLoadBalancer,
			Ports: []corev1.ServicePort{{Port: 80}},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		s.t.Fatal(err)
	}
	created.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: address}}
	if _, err := services.UpdateStatus(s.t.Context(), created, metav1.UpdateOptions{}); err != nil {
		s.t.Fatal(err)
	}
}
