// What is read and written, one JSON object per line.

package main

// command asks for something.
type command struct {
	ID  int    `json:"id"`
	Cmd string `json:"cmd"`
}

// answer is the answer to the command of the same id.
type answer struct {
	ID    int    `json:"id"`
	Error string `json:"error,omitempty"`
	// Sessions are the addresses of the nodes with an established session, in order.
	Sessions []string `json:"sessions"`
	// Routes are all routes of the daemon's table, in order; a prefix that two nodes announce is there twice.
	Routes []route `json:"routes"`
}

// route is a path to a prefix.
type route struct {
	Prefix  string `json:"prefix"`
	NextHop string `json:"nextHop,omitempty"`
	// Node is the address from which it was announced.
	Node string `json:"node,omitempty"`
}

// event is news.
type event struct {
	Event string `json:"event"`
	// Address and Port are of ready: where the daemon listens.
	Address string `json:"address,omitempty"`
	Port    uint16 `json:"port,omitempty"`
	// Node is of session: the address of the other side. State is as BGP has it.
	Node  string `json:"node,omitempty"`
	State string `json:"state,omitempty"`
	// Route is of best: the route that is used now. One without next hop says that there is none any more.
	Route *route `json:"route,omitempty"`
}
