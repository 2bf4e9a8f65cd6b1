// The modes in which a node has podCIDRs, and the mode in which Cilium announces none.

package suite

import (
	"fmt"
	"sync/atomic"
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

			// With its CiliumNode gone a node goes on; a change of the advertisement makes it look at everything anew.
			a.deleteCiliumNode()
			s.advertise()
			s.awaitRoutes()
			s.advertise("PodCIDR")
			s.awaitRoutes("10.1.0.0/24 a", "10.1.1.0/24 b", "fd00:1::/120 a")
			a.createCiliumNode()
			s.awaitRoutes("10.1.1.0/24 b")
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
	first := s.createService()
	s.awaitRoutes(first + " a")
	second := s.createService()
	s.awaitRoutes(first+" a", second+" a")
}

// advertise makes these all that is advertised.
func (s *scene) advertise(types ...string) {
	s.t.Helper()
	// The list may not be empty; no Service has this label.
	nothing := object{
		"advertisementType": "Service",
		"service":           object{"addresses": []any{"ClusterIP"}},
		"selector":          object{"matchLabels": object{advertised: "nothing"}},
	}
	advertisements := []any{nothing}
	for _, each := range types {
		advertisements = append(advertisements, object{"advertisementType": each})
	}
	s.patch(bgpObject("CiliumBGPAdvertisement", "ciliumbgpadvertisements"), s.name, object{"spec": object{"advertisements": advertisements}})
}

// nServices numbers the addresses of Services: no two in the cluster may have the same.
var nServices atomic.Int32

// createService makes a Service that has an address for the world outside, and returns the prefix with which that is
// announced.
func (s *scene) createService() (prefix string) {
	s.t.Helper()
	address := fmt.Sprintf("198.51.100.%d", nServices.Add(1))
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
	return address + "/32"
}
