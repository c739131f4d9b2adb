package server

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
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

// ensure makes what is missing: the authority, the administrator's certificate and the key that signs ServiceAccount tokens. A
// folder that has them all keeps them, so a lab can be started again. The servers' certificate is made anew, for address.
func (p pki) ensure(address net.IP) error {
	if _, err := os.Stat(p.path("admin.crt")); err != nil {
		if err := p.found(); err != nil {
			return err
		}
	}
	return p.issue("apiserver", pkix.Name{CommonName: "kube-apiserver"}, x509.ExtKeyUsageServerAuth, address)
}

// found makes the authority and what it is the first to sign.
func (p pki) found() error {
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
	return p.issue("admin", pkix.Name{CommonName: adminName, Organization: []string{"system:masters"}}, x509.ExtKeyUsageClientAuth)
}

// issue has the authority sign a certificate, good for servers on loopback, behind Service kubernetes and at further addresses.
func (p pki) issue(name string, subject pkix.Name, usage x509.ExtKeyUsage, addresses ...net.IP) error {
	authority, err := tls.LoadX509KeyPair(p.path("ca.crt"), p.path("ca.key"))
	if err != nil {
		return fmt.Errorf("load the lab's authority: %w", err)
	}
	key, err := newKey()
	if err != nil {
		return err
	}
	now := time.Now()
	der, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{
		SerialNumber: serial(), Subject: subject, NotBefore: now.Add(-backdate), NotAfter: now.Add(lifetime),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{usage},
		DNSNames:    []string{"localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc"},
		IPAddresses: append(addresses, net.IPv4(127, 0, 0, 1), net.IPv6loopback, net.ParseIP(serviceIP)),
	}, authority.Leaf, key.Public(), authority.PrivateKey)
	if err != nil {
		return fmt.Errorf("issue certificate %s: %w", name, err)
	}
	if err := writeKey(p.path(name+".key"), key); err != nil {
		return err
	}
	return writePEM(p.path(name+".crt"), "CERTIFICATE", der)
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
