package main

import (
	"bufio"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"net/http"
	"os"
	"time"

	"github.com/go-kit/log"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/clientcmd"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/webhook"

	"github.com/metallb/frr-k8s/api/v1beta1"
	"github.com/metallb/frr-k8s/internal/controller"
	"github.com/metallb/frr-k8s/internal/webhooks"
)

// registered is the name of the webhook's configuration in the API server.
const registered = "frr-k8s-validating-webhook-configuration"

// path is where the validator of frr-k8s is served.
const path = "/validate-frrk8s-metallb-io-v1beta1-frrconfiguration"

// serve is frr-k8s's program `statuscleaner` with a free port and a certificate of its own: the webhook that validates
// FRRConfigurations, and the cleaner that deletes the FRRNodeStates of nodes without a Pod of frr-k8s. It exits when standard
// input is closed.
func serve(kubeconfig, namespace string) error {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go func() {
		for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		}
		cancel()
	}()
	scheme := runtime.NewScheme()
	if err := clientgoscheme.AddToScheme(scheme); err != nil {
		return err
	}
	if err := v1beta1.AddToScheme(scheme); err != nil {
		return err
	}
	configuration, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return err
	}
	server, authority, err := newServer()
	if err != nil {
		return err
	}
	manager, err := ctrl.NewManager(configuration, ctrl.Options{
		Scheme: scheme, WebhookServer: server, Metrics: metricsserver.Options{BindAddress: "0"},
	})
	if err != nil {
		return err
	}
	logger := log.NewLogfmtLogger(os.Stderr)
	webhooks.Logger, webhooks.WebhookClient, webhooks.Validate = logger, manager.GetAPIReader(), controller.Validate
	if err := (&webhooks.FRRConfigValidator{}).SetupWebhookWithManager(manager); err != nil {
		return err
	}
	cleaner := &controller.NodeStateCleaner{Client: manager.GetClient(), Scheme: scheme, Logger: logger, Namespace: namespace}
	if err := cleaner.SetupWithManager(manager); err != nil {
		return err
	}
	direct, err := client.New(configuration, client.Options{Scheme: scheme})
	if err != nil {
		return err
	}
	hook := hookAt("https://"+server.listener.Addr().String()+path, authority)
	if err := direct.Create(ctx, hook); err != nil {
		return err
	}
	defer func() { _ = direct.Delete(context.Background(), hook) }()
	fmt.Println(`{"event":"ready"}`)
	return manager.Start(ctx)
}

// hookAt is the configuration of frr-k8s's installation, with this address.
func hookAt(url string, authority []byte) *admissionv1.ValidatingWebhookConfiguration {
	fail, none := admissionv1.Fail, admissionv1.SideEffectClassNone
	return &admissionv1.ValidatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: registered},
		Webhooks: []admissionv1.ValidatingWebhook{{
			Name:                    "frrconfigurationsvalidationwebhook.metallb.io",
			ClientConfig:            admissionv1.WebhookClientConfig{URL: &url, CABundle: authority},
			FailurePolicy:           &fail,
			SideEffects:             &none,
			AdmissionReviewVersions: []string{"v1"},
			Rules: []admissionv1.RuleWithOperations{{
				Operations: []admissionv1.OperationType{admissionv1.Create, admissionv1.Update},
				Rule: admissionv1.Rule{
					APIGroups: []string{"frrk8s.metallb.io"}, APIVersions: []string{"v1beta1"},
					Resources: []string{"frrconfigurations"},
				},
			}},
		}},
	}
}

// webhookServer serves webhooks on a free port, which controller-runtime's own server can't.
type webhookServer struct {
	mux      *http.ServeMux
	listener net.Listener
}

var _ webhook.Server = &webhookServer{}

// newServer listens, and returns the certificate by which it is known.
func newServer() (*webhookServer, []byte, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
	}
	certificate, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		return nil, nil, err
	}
	listener, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{
		Certificates: []tls.Certificate{{Certificate: [][]byte{certificate}, PrivateKey: key}},
	})
	if err != nil {
		return nil, nil, err
	}
	authority := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: certificate})
	return &webhookServer{mux: http.NewServeMux(), listener: listener}, authority, nil
}

func (s *webhookServer) NeedLeaderElection() bool                   { return false }
func (s *webhookServer) Register(path string, handler http.Handler) { s.mux.Handle(path, handler) }
func (s *webhookServer) StartedChecker() healthz.Checker {
	return func(*http.Request) error { return nil }
}
func (s *webhookServer) WebhookMux() *http.ServeMux { return s.mux }

func (s *webhookServer) Start(ctx context.Context) error {
	context.AfterFunc(ctx, func() { _ = s.listener.Close() })
	if err := http.Serve(s.listener, s.mux); ctx.Err() == nil {
		return err
	}
	return nil
}
