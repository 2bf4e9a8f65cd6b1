// The router: a BGP daemon outside the cluster.

package suite

import (
	"encoding/json"
	"fmt"
	"sync"
	"testing"
	"time"
)

// route is a route of the router's table, or its best one to a prefix.
type route struct {
	Prefix  string `json:"prefix"`
	NextHop string `json:"nextHop"`
	Node    string `json:"node"`
}

// table is what the router knows.
type table struct {
	ID       int      `json:"id"`
	Error    string   `json:"error"`
	Sessions []string `json:"sessions"`
	Routes   []route  `json:"routes"`
}

// heard is an event of the router.
type heard struct {
	Event   string `json:"event"`
	Address string `json:"address"`
	Port    int    `json:"port"`
	State   string `json:"state"`
	Route   *route `json:"route"`
}

// router is the daemon of one test.
type router struct {
	*process
	address string
	port    int
	ready   chan heard
	answers chan table
	asked   int

	events sync.Mutex
	// best are all changes of the best route to some prefix, in order. One without next hop says that there is none.
	best []route
}

func startRouter(t *testing.T) *router {
	t.Helper()
	r := &router{ready: make(chan heard, 1), answers: make(chan table, 1)}
	r.process = startProcess(t, "the router", r.hear, peerBinary)
	select {
	case e := <-r.ready:
		r.address, r.port = e.Address, e.Port
	case <-r.ended:
		t.Fatal("the router ended before it was ready")
	}
	return r
}

// hear reads a line of the router.
func (r *router) hear(line []byte) {
	var e heard
	if err := json.Unmarshal(line, &e); err != nil {
		r.keep(line)
		return
	}
	switch e.Event {
	case "": // It is an answer.
		var a table
		if err := json.Unmarshal(line, &a); err != nil {
			a.Error = err.Error()
		}
		r.answers <- a
	case "ready":
		r.ready <- e
	case "best":
		r.events.Lock()
		defer r.events.Unlock()
		r.best = append(r.best, *e.Route)
	default:
		r.keep(line)
	}
}

// table asks the router for all that it knows.
func (r *router) table() table {
	r.t.Helper()
	r.asked++
	if _, err := fmt.Fprintf(r.stdin, "{\"id\":%d,\"cmd\":\"table\"}\n", r.asked); err != nil {
		r.t.Fatalf("asking the router: %v", err)
	}
	select {
	case a := <-r.answers:
		if a.Error != "" || a.ID != r.asked {
			r.t.Fatalf("the router answered %+v to question %d", a, r.asked)
		}
		return a
	case <-r.ended:
		r.t.Fatal("the router has ended")
	case <-time.After(patience):
		r.t.Fatal("the router does not answer")
	}
	return table{}
}

// moment is a point in what the router has heard.
type moment int

func (r *router) now() moment {
	r.events.Lock()
	defer r.events.Unlock()
	return moment(len(r.best))
}

// since are the changes of the best route to the prefix since then.
func (r *router) since(from moment, prefix string) []route {
	r.events.Lock()
	defer r.events.Unlock()
	var changes []route
	for _, change := range r.best[from:] {
		if change.Prefix == prefix {
			changes = append(changes, change)
		}
	}
	return changes
}
