package server

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// lifetime of every certificate: a lab is short-lived, but a clock may be off by hours.
const (
	backdate = 24 * time.Hour
	lifetime = 10 * 365 * 24 * time.Hour
)

// adminName is the administrator's name in the API server's eyes.
const adminName = "muster-lab-admin"

// pki is a lab's own certificate authority and the files made with it, all below one folder.
type pki struct{ dir string }

func (p pki) path(name string) string { return filepath.Join(p.dir, name) }

// ensure makes what is missing: the authority, the servers' certificate, the administrator's certificate and the
// key that signs ServiceAccount tokens. A folder that has them all is left alone, so a lab can be started again.
func (p pki) ensure() error {
	if _, err := os.Stat(p.path("admin.crt")); err == nil {
		return nil
	}
	if err := os.MkdirAll(p.dir, 0o700); err != nil {
		return fmt.Errorf("make the certificates' folder: %w", err)
	}
	now := time.Now()
	caKey, err := newKey()
	if err != nil {
		return err
	}
	ca := &x509.Certificate{
		SerialNumber: serial(), Subject: pkix.Name{CommonName: "muster-lab"},
		NotBefore: now.Add(-backdate), NotAfter: now.Add(lifetime), IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
	}
	caDER, err := x509.CreateCertificate(rand.Reader, ca, ca, caKey.Public(), caKey)
	if err != nil {
		return fmt.Errorf("make the lab's authority: %w", err)
	}
	issue := func(name string, subject pkix.Name, usage x509.ExtKeyUsage) error {
		key, err := newKey()
		if err != nil {
			return err
		}
		der, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{
			SerialNumber: serial(), Subject: subject, NotBefore: now.Add(-backdate), NotAfter: now.Add(lifetime),
			KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{usage},
			DNSNames:    []string{"localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc"},
			IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback, net.ParseIP(serviceIP)},
		}, ca, key.Public(), caKey)
		if err != nil {
			return fmt.Errorf("issue certificate %s: %w", name, err)
		}
		if err := writeKey(p.path(name+".key"), key); err != nil {
			return err
		}
		return writePEM(p.path(name+".crt"), "CERTIFICATE", der)
	}
	if err := writeKey(p.path("ca.key"), caKey); err != nil {
		return err
	}
	if err := writePEM(p.path("ca.crt"), "CERTIFICATE", caDER); err != nil {
		return err
	}
	tokenKey, err := newKey()
	if err != nil {
		return err
	}
	if err := writeKey(p.path("serviceaccount.key"), tokenKey); err != nil {
		return err
	}
	if err := issue("apiserver", pkix.Name{CommonName: "kube-apiserver"}, x509.ExtKeyUsageServerAuth); err != nil {
		return err
	}
	// The administrator is known by a token, too: of every request that comes with a certificate the API server checks the
	// signatures, which costs as much as reading an object.
	token := make([]byte, 24)
	if _, err := rand.Read(token); err != nil {
		return fmt.Errorf("make the administrator's token: %w", err)
	}
	line := fmt.Sprintf("%x,%s,admin,system:masters\n", token, adminName)
	if err := os.WriteFile(p.path("tokens.csv"), []byte(line), 0o600); err != nil {
		return fmt.Errorf("write the administrator's token: %w", err)
	}
	// Last: its presence says that the set is complete.
	return issue("admin", pkix.Name{CommonName: adminName, Organization: []string{"system:masters"}}, x509.ExtKeyUsageClientAuth)
}

// kubeconfig writes the administrator's kubeconfig for server, with everything it needs inside it.
func (p pki) kubeconfig(path, server string) error {
	read := func(name string) []byte {
		b, _ := os.ReadFile(p.path(name)) // an unreadable file shows as a kubeconfig that fails to load below
		return b
	}
	c := clientcmdapi.NewConfig()
	c.Clusters["muster-lab"] = &clientcmdapi.Cluster{Server: server, CertificateAuthorityData: read("ca.crt")}
	token, _, _ := strings.Cut(string(read("tokens.csv")), ",")
	c.AuthInfos["admin"] = &clientcmdapi.AuthInfo{Token: token}
	c.Contexts["muster-lab"] = &clientcmdapi.Context{Cluster: "muster-lab", AuthInfo: "admin"}
	c.CurrentContext = "muster-lab"
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return fmt.Errorf("write the kubeconfig: %w", err)
	}
	if err := clientcmd.WriteToFile(*c, path); err != nil {
		return fmt.Errorf("write the kubeconfig: %w", err)
	}
	return os.Chmod(path, 0o600)
}

func newKey() (*ecdsa.PrivateKey, error) {
	k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("make a key: %w", err)
	}
	return k, nil
}

func serial() *big.Int {
	n, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		panic("the system's source of randomness failed: " + err.Error())
	}
	return n
}

func writeKey(path string, key *ecdsa.PrivateKey) error {
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return fmt.Errorf("encode %s: %w", path, err)
	}
	return writePEM(path, "EC PRIVATE KEY", der)
}

func writePEM(path, kind string, der []byte) error {
	if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	return nil
}
