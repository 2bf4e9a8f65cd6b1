// The controller of this project at work: the claims of nodes are what the router has.

package suite

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"nodeipam.io/tests/agent/rig"
)

var (
	nodeIPPool  = kind{"NodeIPPool", schema.GroupVersionResource{Group: "nodeipam.io", Version: "v1alpha1", Resource: "nodeippools"}}
	nodeIPBlock = kind{"NodeIPBlock", schema.GroupVersionResource{Group: "nodeipam.io", Version: "v1alpha1", Resource: "nodeipblocks"}}
)

// A cluster in mode multi-pool: nodes join, grow, give back, restart and leave, and the controller is killed. The IPAM
// side of every agent is that of 1.17.8, the BGP side that of the release under test.
func TestClaimsOfTheControllerAreAnnounced(t *testing.T) {
	t.Parallel()
	c, stop, err := startCluster("--crds", "../../../crds")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(stop)
	s := newSceneIn(c, t, multiPool)
	s.create(podIPPool, "default", object{advertised: s.name}, ipv4("10.1.0.0/24", 28))
	s.create(nodeIPPool, "racks", nil, object{
		"ipv4":       object{"blockSize": 28, "cidrs": []any{object{"cidr": "10.1.0.0/24"}}},
		"reuseAfter": "1s", "reuseAfterNodeLoss": "1s",
	})
	settings := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: "cilium-config", Namespace: "kube-system"},
		Data:       map[string]string{"ipam": "multi-pool", "enable-ipv4": "true", "enable-ipv6": "false"},
	}
	if _, err := s.kube.CoreV1().ConfigMaps("kube-system").Create(t.Context(), settings, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	controller := s.startController()

	// Joining.
	a, b := s.newMachine("a", "192.0.2.10"), s.newMachine("b", "192.0.2.11")
	a.start()
	b.start()
	s.awaitClaimed(map[*machine]span{a: {1, 1}, b: {1, 1}})

	// Growth.
	a.fill(40)
	s.awaitClaimed(map[*machine]span{a: {3, 5}, b: {1, 1}})

	// An agent is killed, and starts again.
	before := s.claims()
	a.kill()
	s.awaitRoutes(of(before, "b")...)
	a.start()
	s.awaitRoutes(before...)

	// The controller is killed meanwhile; the next one goes on.
	controller.kill()
	b.ask(30)
	controller = s.startController()
	b.fill(30)
	s.awaitClaimed(map[*machine]span{a: {3, 5}, b: {3, 4}})

	// Release: the agent gives back what it does not need, and the blocks cool and are free.
	a.empty()
	s.awaitClaimed(map[*machine]span{a: {1, 2}, b: {3, 4}})

	// A node leaves.
	b.kill()
	b.leave()
	s.awaitClaimed(map[*machine]span{a: {1, 2}})

	// Others get its blocks: there are 16 in all.
	d, e := s.newMachine("d", "192.0.2.12"), s.newMachine("e", "192.0.2.13")
	d.start()
	e.start()
	d.fill(75)
	e.fill(75)
	s.awaitClaimed(map[*machine]span{a: {1, 2}, d: {6, 7}, e: {6, 7}})
	if !controller.lives() {
		t.Error("the controller has ended")
	}
}

func (s *scene) startController() *process {
	s.t.Helper()
	return startProcess(s.t, "the controller", nil, controllerBinary, "run", "--kubeconfig", s.cluster.kubeconfig,
		"--modes", "multi-pool", "--listen", "127.0.0.1:0", "--min-write-interval", "500ms", "--leader-elect=false")
}

// claims are "CIDR NODE" of every claim that is held, the node by its short name.
func (s *scene) claims() []string {
	s.t.Helper()
	list, err := s.objects.Resource(nodeIPBlock.resource).List(s.t.Context(), metav1.ListOptions{})
	if err != nil {
		s.t.Fatal(err)
	}
	held := []string{}
	for _, claim := range list.Items {
		text := func(field string) string {
			value, _, _ := unstructured.NestedString(claim.Object, "spec", field)
			return value
		}
		if text("state") == "Held" {
			held = append(held, text("cidr")+" "+strings.TrimPrefix(text("node"), s.name+"-"))
		}
	}
	slices.Sort(held)
	return held
}

// of are the claims of a node.
func of(claims []string, short string) []string {
	var own []string
	for _, claim := range claims {
		if strings.HasSuffix(claim, " "+short) {
			own = append(own, claim)
		}
	}
	return own
}

// span is a number of blocks, from one to another: how many an agent needs depends on when it asked.
type span struct{ least, most int }

// awaitClaimed waits until the machines hold so many blocks, nobody else holds any, and the router has just these.
func (s *scene) awaitClaimed(want map[*machine]span) {
	s.t.Helper()
	var held, routes []string
	s.await("the routes to be the claims", func() bool {
		held, routes = s.claims(), nil
		for _, r := range s.router.table().Routes {
			routes = append(routes, s.describe(r))
		}
		slices.Sort(routes)
		total := 0
		for m, n := range want {
			own := len(of(held, m.short))
			if own < n.least || own > n.most {
				return false
			}
			total += own
		}
		return len(held) == total && slices.Equal(held, routes)
	}, func() string {
		wanted := []string{}
		for m, n := range want {
			wanted = append(wanted, fmt.Sprintf("%s: %d to %d", m.short, n.least, n.most))
		}
		return fmt.Sprintf("wanted %v, claims %q, routes %q", wanted, held, routes)
	})
	s.t.Logf("claims and routes: %q", held)
}

// machine is a node with both sides of its agent.
type machine struct {
	*node
	ipam    *process
	answers chan rig.Answer
	asked   int
	// pods is what its pods have, by owner.
	pods []rig.Allocation
}

func (s *scene) newMachine(short, internalIP string) *machine {
	s.t.Helper()
	m := &machine{node: s.configureNode(short)}
	created, err := s.kube.CoreV1().Nodes().Create(s.t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: m.name}}, metav1.CreateOptions{})
	if err != nil {
		s.t.Fatal(err)
	}
	created.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: internalIP}}
	if _, err := s.kube.CoreV1().Nodes().UpdateStatus(s.t.Context(), created, metav1.UpdateOptions{}); err != nil {
		s.t.Fatal(err)
	}
	return m
}

// start runs both sides, and restores the pods.
func (m *machine) start() {
	m.scene.t.Helper()
	m.node.start()
	answers := make(chan rig.Answer, 1)
	m.answers = answers
	m.ipam = startProcess(m.scene.t, m.short+", IPAM,", func(line []byte) {
		var answer rig.Answer
		if err := json.Unmarshal(line, &answer); err == nil && len(answer.ID) > 0 {
			answers <- answer
		}
	}, ipamBinary, "--kubeconfig", m.scene.cluster.kubeconfig, "--node", m.name, "--ipv4", "--ipam", "multi-pool", "--health=false")
	started := m.call(rig.Command{Cmd: "start", Restore: m.pods})
	if !started.OK || len(started.Lost) > 0 {
		m.scene.t.Fatalf("%s started with %+v", m.short, started)
	}
}

func (m *machine) call(c rig.Command) rig.Answer {
	m.scene.t.Helper()
	m.asked++
	c.ID = json.RawMessage(fmt.Sprint(m.asked))
	line, err := json.Marshal(c)
	if err == nil {
		_, err = m.ipam.stdin.Write(append(line, '\n'))
	}
	if err != nil {
		m.scene.t.Fatal(err)
	}
	select {
	case answer := <-m.answers:
		return answer
	case <-m.ipam.ended:
		m.scene.t.Fatalf("the agent of %s ended: %s", m.short, strings.Join(m.ipam.last(10), "\n"))
	case <-time.After(patience):
		m.scene.t.Fatalf("the agent of %s does not answer to %+v", m.short, c)
	}
	return rig.Answer{}
}

// ask lets pods ask for an address until there are so many, each under its own name; those that get none ask again at
// the next call, as the kubelet lets them.
func (m *machine) ask(total int) {
	m.scene.t.Helper()
	for i := range total {
		owner := fmt.Sprintf("ns/%d", i)
		if slices.ContainsFunc(m.pods, func(pod rig.Allocation) bool { return pod.Owner == owner }) {
			continue
		}
		answer := m.call(rig.Command{Cmd: "allocate", Owner: owner})
		if answer.OK {
			m.pods = append(m.pods, rig.Allocation{Owner: owner, Pool: answer.Pool, Addresses: answer.Addresses})
		}
	}
}

// fill lets pods come until there are so many, and waits for addresses.
func (m *machine) fill(total int) {
	m.scene.t.Helper()
	m.scene.await(fmt.Sprintf("%d pods on %s", total, m.short), func() bool {
		m.ask(total)
		return len(m.pods) >= total
	}, func() string { return fmt.Sprintf("there are %d; claims %q", len(m.pods), m.scene.claims()) })
}

// empty ends all pods.
func (m *machine) empty() {
	m.scene.t.Helper()
	for _, pod := range m.pods {
		if answer := m.call(rig.Command{Cmd: "release", Owner: pod.Owner}); !answer.OK {
			m.scene.t.Fatalf("releasing %+v: %s", pod, answer.Error)
		}
	}
	m.pods = nil
}

func (m *machine) kill() {
	m.agent.kill()
	m.ipam.kill()
}

// leave takes the Node away; its CiliumNode goes with it.
func (m *machine) leave() {
	m.scene.t.Helper()
	if err := m.scene.kube.CoreV1().Nodes().Delete(m.scene.t.Context(), m.name, metav1.DeleteOptions{}); err != nil {
		m.scene.t.Fatal(err)
	}
}
