// How etcd is started: its flags, and how it is seen to be ready.

package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"time"
)

// etcdFlags are understood alike by the linked etcd and by an etcd binary. Clients and the peer port use plain
// HTTP on the loopback device: the data are throw-away, and what the tests are about is the API server's TLS.
func etcdFlags(data string, clientPort, peerPort int, fsync bool) []string {
	client := fmt.Sprintf("http://127.0.0.1:%d", clientPort)
	peer := fmt.Sprintf("http://127.0.0.1:%d", peerPort)
	flags := []string{
		"--name=controlplane",
		"--data-dir=" + filepath.Join(data, "etcd"),
		"--listen-client-urls=" + client,
		"--advertise-client-urls=" + client,
		"--listen-peer-urls=" + peer,
		"--initial-advertise-peer-urls=" + peer,
		"--initial-cluster=controlplane=" + peer,
		"--quota-backend-bytes=8589934592",
		"--log-level=warn",
	}
	if !fsync {
		// A killed process loses nothing by this, since the page cache survives it; a lost machine would.
		flags = append(flags, "--unsafe-no-fsync=true")
	}
	return flags
}

// etcdReady asks etcd once whether it has a leader and answers reads.
func etcdReady(ctx context.Context, server string) error {
	return probe(ctx, http.DefaultClient, server+"/health", func(body string) bool {
		return strings.Contains(body, `"health":"true"`)
	})
}

// probe makes one GET request and fails unless the answer is 200 with a body that accept takes.
func probe(ctx context.Context, client *http.Client, url string, accept func(body string) bool) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	answer, err := client.Do(request)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(io.LimitReader(answer.Body, 64<<10))
	if err != nil {
		return err
	}
	if answer.StatusCode != http.StatusOK || !accept(string(body)) {
		return fmt.Errorf("GET %s: %s: %s", url, answer.Status, body)
	}
	return nil
}
