// The certificates of one control plane: a CA, the API server's serving certificate, the administrator's client
// certificate, and the key that signs service account tokens.
//
// They are made once for a data folder and kept, so that a kubeconfig stays valid over restarts.

package main

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"
)

// credentials names the files that the API server reads and holds the bytes that kubeconfigs carry.
type credentials struct {
	caFile, servingCertFile, servingKeyFile string
	serviceAccountKeyFile, tokenFile        string

	ca, adminCert, adminKey []byte // PEM.
	controllerToken         string
}

const (
	// certificateLife is longer than any demo and short enough that a forgotten folder is worth nothing.
	certificateLife = 30 * 24 * time.Hour

	controllerUser   = "system:serviceaccount:kube-system:cilium-node-ipam"
	controllerGroups = "system:serviceaccounts,system:serviceaccounts:kube-system,system:authenticated"
)

// loadOrMakeCredentials returns the credentials in folder, making them if the folder has no whole set yet.
func loadOrMakeCredentials(folder string) (*credentials, error) {
	inFolder := func(name string) string { return filepath.Join(folder, name) }
	c := &credentials{
		caFile:                inFolder("ca.crt"),
		servingCertFile:       inFolder("apiserver.crt"),
		servingKeyFile:        inFolder("apiserver.key"),
		serviceAccountKeyFile: inFolder("service-account.key"),
		tokenFile:             inFolder("tokens.csv"),
	}
	// The marker is written last, so a set that was cut short by a kill is recreated.
	marker := inFolder("complete")
	if _, err := os.Stat(marker); errors.Is(err, fs.ErrNotExist) {
		if err := c.make(folder); err != nil {
			return nil, fmt.Errorf("making certificates: %w", err)
		}
		if err := os.WriteFile(marker, nil, 0o600); err != nil {
			return nil, err
		}
	}
	token, err := os.ReadFile(inFolder("controller.token"))
	if err != nil {
		return nil, err
	}
	c.controllerToken = string(token)
	for file, into := range map[string]*[]byte{"ca.crt": &c.ca, "admin.crt": &c.adminCert, "admin.key": &c.adminKey} {
		if *into, err = os.ReadFile(inFolder(file)); err != nil {
			return nil, err
		}
	}
	return c, nil
}

func (c *credentials) make(folder string) error {
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return err
	}
	caKey, err := newKey()
	if err != nil {
		return err
	}
	ca := template("controlplane-ca", 1)
	ca.IsCA = true
	ca.BasicConstraintsValid = true
	ca.KeyUsage = x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature
	caDER, err := x509.CreateCertificate(rand.Reader, ca, ca, caKey.Public(), caKey)
	if err != nil {
		return err
	}

	serving := template("kube-apiserver", 2)
	serving.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	serving.IPAddresses = []net.IP{net.IPv4(127, 0, 0, 1)}
	serving.DNSNames = []string{"localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc"}

	admin := template("controlplane-admin", 3)
	admin.Subject.Organization = []string{"system:masters"}
	admin.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}

	if err := writePEM(filepath.Join(folder, "ca.crt"), "CERTIFICATE", caDER); err != nil {
		return err
	}
	if err := issue(serving, ca, caKey, c.servingCertFile, c.servingKeyFile); err != nil {
		return err
	}
	if err := issue(admin, ca, caKey, filepath.Join(folder, "admin.crt"), filepath.Join(folder, "admin.key")); err != nil {
		return err
	}
	serviceAccountKey, err := newKey()
	if err != nil {
		return err
	}
	if err := writeKey(c.serviceAccountKeyFile, serviceAccountKey); err != nil {
		return err
	}

	random := make([]byte, 24)
	if _, err := rand.Read(random); err != nil {
		return err
	}
	token := hex.EncodeToString(random)
	if err := os.WriteFile(filepath.Join(folder, "controller.token"), []byte(token), 0o600); err != nil {
		return err
	}
	line := fmt.Sprintf("%s,%s,cilium-node-ipam,%q\n", token, controllerUser, controllerGroups)
	return os.WriteFile(c.tokenFile, []byte(line), 0o600)
}

func template(name string, serial int64) *x509.Certificate {
	now := time.Now()
	return &x509.Certificate{
		SerialNumber: big.NewInt(serial),
		Subject:      pkix.Name{CommonName: name},
		NotBefore:    now.Add(-time.Hour), // A machine's clock may step back a little.
		NotAfter:     now.Add(certificateLife),
		KeyUsage:     x509.KeyUsageDigitalSignature,
	}
}

func issue(cert, ca *x509.Certificate, caKey crypto.Signer, certFile, keyFile string) error {
	key, err := newKey()
	if err != nil {
		return err
	}
	der, err := x509.CreateCertificate(rand.Reader, cert, ca, key.Public(), caKey)
	if err != nil {
		return err
	}
	if err := writePEM(certFile, "CERTIFICATE", der); err != nil {
		return err
	}
	return writeKey(keyFile, key)
}

func newKey() (*ecdsa.PrivateKey, error) {
	return ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
}

func writeKey(file string, key *ecdsa.PrivateKey) error {
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return err
	}
	return writePEM(file, "EC PRIVATE KEY", der)
}

func writePEM(file, kind string, der []byte) error {
	return os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600)
}
