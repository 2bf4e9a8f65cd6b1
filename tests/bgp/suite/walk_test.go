// A cluster in motion: whatever happens, the router has what the CiliumNodes have.

package suite

import (
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"testing"
)

// BGP_SEED chooses the walk; without it each run is another one.
func seed(t *testing.T) uint64 {
	t.Helper()
	text := os.Getenv("BGP_SEED")
	if text == "" {
		return rand.Uint64()
	}
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		t.Fatalf("BGP_SEED: %v", err)
	}
	return n
}

// walker is a controller with few blocks: one that leaves a node is free, and another node may get it next.
type walker struct {
	*scene
	random *rand.Rand
	free   []string
	held   map[*node][]string
}

func TestPoolsRouterHasWhatIsAllocated(t *testing.T) {
	first := seed(t)
	s := newScene(t, multiPool)
	t.Logf("BGP_SEED=%d", first)
	s.createPool("web", ipv4("10.1.0.0/16", 26))
	w := walker{scene: s, random: rand.New(rand.NewPCG(first, 0)), held: map[*node][]string{}}
	for i := range 8 {
		w.free = append(w.free, fmt.Sprintf("10.1.0.%d/26", i%4*64), fmt.Sprintf("10.1.1.%d/26", i%4*64))
	}
	slices.Sort(w.free)
	w.free = slices.Compact(w.free)
	for _, name := range []string{"a", "b", "c"} {
		s.newNode(name).start()
	}
	for range 60 {
		w.step()
	}
}

func (w *walker) step() {
	n := w.nodes[w.random.IntN(len(w.nodes))]
	switch mine := w.held[n]; w.random.IntN(10) {
	case 0:
		n.agent.kill()
		w.awaitRoutes(w.want(n)...)
		n.start()
	case 1: // The node leaves and returns.
		n.agent.kill()
		n.deleteCiliumNode()
		w.awaitRoutes(w.want(n)...)
		w.free, w.held[n] = append(w.free, mine...), nil
		n.createCiliumNode()
		n.start()
	case 2, 3, 4, 5, 6:
		if len(w.free) == 0 {
			return
		}
		i := w.random.IntN(len(w.free))
		w.held[n] = append(slices.Clone(mine), w.free[i])
		w.free = slices.Delete(w.free, i, i+1)
		n.allocate(w.in("web", w.held[n]...))
	default:
		if len(mine) == 0 {
			return
		}
		i := w.random.IntN(len(mine))
		w.free = append(w.free, mine[i])
		w.held[n] = slices.Delete(slices.Clone(mine), i, i+1)
		n.allocate(w.in("web", w.held[n]...))
	}
	w.awaitRoutes(w.want(nil)...)
}

// want are the routes of all nodes but one.
func (w *walker) want(but *node) []string {
	routes := []string{}
	for n, cidrs := range w.held {
		for _, cidr := range cidrs {
			if n != but {
				routes = append(routes, cidr+" "+n.short)
			}
		}
	}
	return routes
}
