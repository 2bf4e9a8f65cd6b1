// How kube-apiserver is started: its flags, and how it is seen to be ready.

package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net/http"
	"path/filepath"
)

// apiserverFlags leaves everything at its default that a controller could notice: the watch cache, priority and
// fairness, compaction. RBAC is on, so that a missing permission of the controller fails a test.
func apiserverFlags(data, etcd string, port int, c *credentials) []string {
	return []string{
		"--etcd-servers=" + etcd,
		"--bind-address=127.0.0.1",
		"--advertise-address=127.0.0.1",
		fmt.Sprintf("--secure-port=%d", port),
		"--cert-dir=" + filepath.Join(data, "apiserver"),
		"--tls-cert-file=" + c.servingCertFile,
		"--tls-private-key-file=" + c.servingKeyFile,
		"--client-ca-file=" + c.caFile,
		"--token-auth-file=" + c.tokenFile,
		"--service-account-issuer=https://kubernetes.default.svc",
		"--service-account-key-file=" + c.serviceAccountKeyFile,
		"--service-account-signing-key-file=" + c.serviceAccountKeyFile,
		"--authorization-mode=RBAC",
		"--service-cluster-ip-range=10.96.0.0/16",
		// There is no kube-controller-manager that would make service accounts, and there are no kubelets.
		"--disable-admission-plugins=ServiceAccount",
		// A loopback address is no legal endpoint of the Service "kubernetes", which nobody uses here.
		"--endpoint-reconciler-type=none",
		// Without this a stop waits a minute for clients to end their watches, which they don't.
		"--shutdown-watch-termination-grace-period=1s",
	}
}

// apiserverClient verifies the server by the CA and shows the administrator's certificate.
func apiserverClient(c *credentials) (*http.Client, error) {
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(c.ca) {
		return nil, fmt.Errorf("%s holds no certificate", c.caFile)
	}
	admin, err := tls.X509KeyPair(c.adminCert, c.adminKey)
	if err != nil {
		return nil, err
	}
	return &http.Client{Transport: &http.Transport{
		TLSClientConfig: &tls.Config{RootCAs: roots, Certificates: []tls.Certificate{admin}},
		// A probe must not be answered on a connection to the process before a restart.
		DisableKeepAlives: true,
	}}, nil
}

// apiserverReady asks the server once whether it is ready.
func apiserverReady(ctx context.Context, client *http.Client, server string) error {
	return probe(ctx, client, server+"/readyz", func(body string) bool { return body == "ok" })
}
