// The supervisor: brings the control plane up in order, and takes everything down with it.

package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"sync"
	"syscall"

	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"nodeipam.io/tests/controlplane/oracle"
)

// supervisor owns the two servers and what looks at them.
type supervisor struct {
	options
	out       *voice
	etcd      *child
	apiserver *child
	etcdURL   string
	serverURL string
	client    *http.Client // The administrator's.
	creds     *credentials
	ports     ports
	judge     *oracle.Oracle
	observer  *observer
	collector *collector
	installer *installer
	baseline  *baseline
}

// run is the subcommand; it returns the exit code.
func run(args []string) int {
	options, err := parseOptions(args)
	if err != nil {
		if !errors.Is(err, flag.ErrHelp) {
			fmt.Fprintln(os.Stderr, err)
		}
		return 2
	}
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer cancel()
	s := &supervisor{options: options, out: newVoice(os.Stdout), judge: oracle.New()}
	if s.fixesPodCIDRs() {
		s.judge.FixPodCIDRs()
	}

	// Reading starts at once, so that a closed standard input ends a start that takes long. A test sends a few
	// commands ahead at most; more of them wait in the pipe.
	commands := make(chan []byte, 1024)
	go func() {
		defer cancel()
		readLines(os.Stdin, commands)
	}()

	err = s.bringUp(ctx)
	if err == nil {
		s.obey(ctx, commands)
	}
	s.takeDown()
	if s.remove != "" {
		_ = os.RemoveAll(s.remove) // Whatever is left of it does no harm.
	}
	if err != nil && ctx.Err() == nil {
		s.out.say(event{Event: "fatal", Message: err.Error()})
		return 1
	}
	return 0
}

// fixesPodCIDRs says whether agents of the mode need their podCIDRs as they are.
func (s *supervisor) fixesPodCIDRs() bool {
	return s.ipam == "cluster-pool" || s.ipam == "kubernetes"
}

// bringUp starts everything and says that it is ready.
func (s *supervisor) bringUp(ctx context.Context) error {
	if err := s.prepare(); err != nil {
		return err
	}
	s.out.progress("starting etcd")
	if err := s.etcd.start(ctx); err != nil {
		return err
	}
	// The oracle looks before the first write, which the API server makes.
	var err error
	s.observer, err = newObserver(ctx, s.etcdURL, s.ipam, s.judge, s.announce)
	if err != nil {
		return err
	}
	s.out.progress("starting kube-apiserver")
	if err := s.apiserver.start(ctx); err != nil {
		return err
	}
	ready := &readyEvent{
		Server:               s.serverURL,
		Etcd:                 s.etcdURL,
		AdminKubeconfig:      filepath.Join(s.data, "admin.kubeconfig"),
		ControllerKubeconfig: filepath.Join(s.data, "controller.kubeconfig"),
	}
	admin := &clientcmdapi.AuthInfo{ClientCertificateData: s.creds.adminCert, ClientKeyData: s.creds.adminKey}
	if err := writeKubeconfig(ready.AdminKubeconfig, s.serverURL, s.creds.ca, admin); err != nil {
		return err
	}
	controller := &clientcmdapi.AuthInfo{Token: s.creds.controllerToken}
	if err := writeKubeconfig(ready.ControllerKubeconfig, s.serverURL, s.creds.ca, controller); err != nil {
		return err
	}
	config, err := clientcmd.BuildConfigFromFlags("", ready.AdminKubeconfig)
	if err != nil {
		return err
	}
	config.QPS = -1 // The harness must not be what a test waits for.
	if ready.Version, err = s.install(ctx, config); err != nil {
		return fmt.Errorf("installing: %w", err)
	}
	client, err := metadata.NewForConfig(config)
	if err != nil {
		return err
	}
	s.collector = newCollector(client)
	s.collector.restart(ctx)
	ready.EtcdPID, ready.ApiserverPID = s.etcd.pid(), s.apiserver.pid()
	s.out.say(event{Event: "ready", readyEvent: ready})
	return nil
}

// prepare makes the folder, the ports, the credentials and the two children, and starts nothing.
func (s *supervisor) prepare() error {
	if err := os.MkdirAll(s.data, 0o755); err != nil {
		return err
	}
	if err := lockFolder(s.data); err != nil {
		return err
	}
	if err := logTo(filepath.Join(s.data, "supervisor.log")); err != nil {
		return err
	}
	ports, err := reservePorts(s.data)
	if err != nil {
		return err
	}
	s.ports = ports
	if s.creds, err = loadOrMakeCredentials(filepath.Join(s.data, "pki")); err != nil {
		return err
	}
	if s.client, err = apiserverClient(s.creds); err != nil {
		return err
	}
	s.etcdURL = fmt.Sprintf("http://127.0.0.1:%d", ports.Etcd)
	s.serverURL = fmt.Sprintf("https://127.0.0.1:%d", ports.Apiserver)

	spawner := newSpawner()
	s.etcd = &child{
		name:    "etcd",
		args:    etcdFlags(s.data, ports.Etcd, ports.EtcdPeer, s.fsync),
		ready:   func(ctx context.Context) error { return etcdReady(ctx, s.etcdURL) },
		spawner: spawner,
	}
	s.apiserver = &child{
		name:    "apiserver",
		args:    apiserverFlags(s.data, s.etcdURL, ports.Apiserver, s.creds),
		ready:   func(ctx context.Context) error { return apiserverReady(ctx, s.client, s.serverURL) },
		spawner: spawner,
	}
	for _, c := range []*child{s.etcd, s.apiserver} {
		c.log = filepath.Join(s.data, c.name+".log")
		c.died = func(name string, err error) {
			s.out.say(event{Event: "died", Target: name, Message: fmt.Sprint(err)})
		}
	}
	return s.choosePrograms()
}

// choosePrograms takes the binaries in KUBEBUILDER_ASSETS, or this binary.
func (s *supervisor) choosePrograms() error {
	assets := os.Getenv("KUBEBUILDER_ASSETS")
	if assets == "" {
		if !serversLinked {
			return errors.New("this build has no servers in it (-tags external_servers) and KUBEBUILDER_ASSETS is not set")
		}
		self, err := os.Executable()
		if err != nil {
			return err
		}
		for _, c := range []*child{s.etcd, s.apiserver} {
			c.program, c.args = self, append([]string{c.name}, c.args...)
		}
		return nil
	}
	s.etcd.program = filepath.Join(assets, "etcd")
	s.apiserver.program = filepath.Join(assets, "kube-apiserver")
	for _, c := range []*child{s.etcd, s.apiserver} {
		if _, err := os.Stat(c.program); err != nil {
			return fmt.Errorf("KUBEBUILDER_ASSETS is set: %w", err)
		}
	}
	s.out.progress("using etcd and kube-apiserver of " + assets)
	return nil
}

// install puts the objects in place and returns the server's version.
func (s *supervisor) install(ctx context.Context, config *rest.Config) (string, error) {
	i, err := newInstaller(config)
	if err != nil {
		return "", err
	}
	s.installer = i
	if s.ciliumCRDs == "" {
		s.out.progress("getting the CRDs of Cilium " + s.ciliumVersion)
	}
	files, err := ciliumCRDPaths(ctx, s.ciliumCRDs, s.ciliumVersion, s.data)
	if err != nil {
		return "", err
	}
	for _, path := range s.manifests {
		more, err := yamlFiles(path)
		if err != nil {
			return "", err
		}
		files = append(files, more...)
	}
	s.out.progress(fmt.Sprintf("applying %d files", len(files)))
	if err := i.applyFiles(ctx, files); err != nil {
		return "", err
	}
	if err := s.takeBaseline(ctx); err != nil {
		return "", err
	}
	if s.ciliumConfig {
		if err := i.ensureCiliumConfig(ctx, s.families, s.ipam); err != nil {
			return "", err
		}
	}
	version, err := i.core.Discovery().ServerVersion()
	if err != nil {
		return "", err
	}
	return version.GitVersion, nil
}

// announce tells of violations at once; what was planted is only listed in reports.
func (s *supervisor) announce(findings []oracle.Finding) {
	for n := range findings {
		if !findings[n].Planted {
			s.out.say(event{Event: "violation", Finding: &findings[n]})
		}
	}
}

// takeDown ends the children at once: nobody is left who would want their data flushed, and a killed etcd loses none.
func (s *supervisor) takeDown() {
	var ending sync.WaitGroup
	for _, c := range []*child{s.apiserver, s.etcd} {
		if c == nil {
			continue
		}
		ending.Go(func() { _ = c.kill() }) // An error says that it has ended already.
	}
	ending.Wait()
}
