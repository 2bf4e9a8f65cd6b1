// An API server as one agent sees it: between them a test can let others write first, hold back news, and answer itself.

package suite

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"k8s.io/client-go/rest"
)

// proxy stands between one agent and the API server. Its hooks are called before a request is passed on.
type proxy struct {
	kubeconfig string

	mu sync.Mutex
	// update is called for each PUT of the CiliumNode, with its number from 1; status for each PUT of its status. A hook
	// that returns a code other than 0 answers the request.
	update func(number int) int
	status func(number int) int
	// news is closed while watches of CiliumNodes are passed on.
	news             chan struct{}
	updates, statusN int
	// bodies are the updates of the CiliumNode that the agent has tried, in order.
	bodies []ciliumNode
	// failures are the codes with which the server has answered updates of the CiliumNode since the hook was set, where
	// they are errors.
	failures []int
	// ownLists is how often the agent has listed its own CiliumNode, allLists how often all of them.
	ownLists, allLists int
}

// open is a closed channel.
func open() chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}

// newProxy passes everything on until it is told otherwise.
func (n testNode) newProxy() *proxy {
	n.t.Helper()
	transport, err := rest.TransportFor(clientConf)
	if err != nil {
		n.t.Fatal(err)
	}
	target, err := url.Parse(clientConf.Host)
	if err != nil {
		n.t.Fatal(err)
	}
	p := &proxy{news: open()}
	forward := httputil.NewSingleHostReverseProxy(target)
	forward.Transport = transport
	forward.FlushInterval = -1
	own := "/apis/cilium.io/v2/ciliumnodes/" + n.name
	forward.ModifyResponse = func(answer *http.Response) error {
		request := answer.Request
		if request.Method == http.MethodPut && request.URL.Path == own && answer.StatusCode >= http.StatusBadRequest {
			p.mu.Lock()
			defer p.mu.Unlock()
			p.failures = append(p.failures, answer.StatusCode)
		}
		if strings.Contains(request.URL.Path, "/ciliumnodes") && request.URL.Query().Has("watch") {
			answer.Body = held{body: answer.Body, proxy: p}
		}
		return nil
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		code := 0
		if query := r.URL.Query(); strings.HasSuffix(r.URL.Path, "/ciliumnodes") && r.Method == http.MethodGet && !query.Has("watch") {
			p.countList(query.Has("fieldSelector"))
		}
		if r.Method == http.MethodPut {
			switch r.URL.Path {
			case own:
				p.keep(r)
				code = p.count(&p.updates, &p.update)
			case own + "/status":
				code = p.count(&p.statusN, &p.status)
			}
		}
		if code != 0 {
			http.Error(w, "refused by the test", code)
			return
		}
		forward.ServeHTTP(w, r)
	}))
	n.t.Cleanup(server.CloseClientConnections)
	p.kubeconfig = filepath.Join(n.t.TempDir(), "kubeconfig")
	text := fmt.Sprintf(`{"apiVersion":"v1","kind":"Config","current-context":"c","clusters":[{"name":"c","cluster":{"server":%q}}],`+
		`"contexts":[{"name":"c","context":{"cluster":"c","user":"u"}}],"users":[{"name":"u","user":{}}]}`, server.URL)
	if err := os.WriteFile(p.kubeconfig, []byte(text), 0o600); err != nil {
		n.t.Fatal(err)
	}
	return p
}

// keep remembers what an update writes.
func (p *proxy) keep(r *http.Request) {
	text, err := io.ReadAll(r.Body)
	r.Body = io.NopCloser(bytes.NewReader(text))
	var body ciliumNode
	if err == nil {
		err = json.Unmarshal(text, &body)
	}
	if err != nil {
		// It can't be passed on as it was, so that the test fails.
		body = ciliumNode{}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.bodies = append(p.bodies, body)
}

// firstUpdate is the first update that the agent has tried with this content.
func (p *proxy) firstUpdate(with func(ciliumNode) bool) (ciliumNode, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	i := slices.IndexFunc(p.bodies, with)
	if i < 0 {
		return ciliumNode{}, false
	}
	return p.bodies[i], true
}

// refused says whether the server has answered an update with this code.
func (p *proxy) refused(code int) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Contains(p.failures, code)
}

// count calls the hook with the number of the request.
func (p *proxy) count(counter *int, hook *func(int) int) int {
	p.mu.Lock()
	*counter++
	number, call := *counter, *hook
	p.mu.Unlock()
	if call == nil {
		return 0
	}
	return call(number)
}

// onUpdate sets the hook and counts from 1 again.
func (p *proxy) onUpdate(hook func(int) int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.update, p.updates, p.failures = hook, 0, nil
}

func (p *proxy) onStatus(hook func(int) int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.status, p.statusN = hook, 0
}

// nUpdates is how many updates there were since the hook was set.
func (p *proxy) nUpdates() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.updates
}

func (p *proxy) countList(own bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if own {
		p.ownLists++
	} else {
		p.allLists++
	}
}

// nLists is how often the agent has listed its own CiliumNode, and all of them.
func (p *proxy) nLists() (own, all int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.ownLists, p.allLists
}

// holdNews holds back what watches of CiliumNodes say from now on; passNews lets it go.
func (p *proxy) holdNews() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.news = make(chan struct{})
}

func (p *proxy) passNews() {
	p.mu.Lock()
	defer p.mu.Unlock()
	close(p.news)
}

// held is the answer to a watch.
type held struct {
	body  io.ReadCloser
	proxy *proxy
}

func (h held) Read(into []byte) (int, error) {
	n, err := h.body.Read(into)
	h.proxy.mu.Lock()
	news := h.proxy.news
	h.proxy.mu.Unlock()
	<-news
	return n, err
}

func (h held) Close() error { return h.body.Close() }
