package admission

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"maps"
	"math/big"
	"net"
	"slices"
	"time"
)

// Keys of the Secret. The first two are KAI's, and what it expects of any Secret of certificates.
const (
	keyServing     = "tls.crt"     // the serving certificate, and the authority that signed it
	keyServingKey  = "tls.key"     // its key
	keyTrusted     = "ca.crt"      // every authority that is or will be used, which is what API servers are told to trust
	keySigner      = "ca.key"      // the key of the one that signs
	keySuccessor   = "ca-next.key" // the key of the one that will sign next; only around a change of authorities
	authorityLife  = 10 * 365 * 24 * time.Hour
	servingLife    = 365 * 24 * time.Hour
	announce       = time.Hour       // how long a new authority is trusted before it signs
	backdate       = 5 * time.Minute // for clocks that are behind
	authorityName  = "muster-admission-ca"
	successionTime = authorityLife / 5 // before its end, an authority gets a successor
	renewalTime    = servingLife / 3   // before its end, a serving certificate is renewed
)

// authority is a certificate that signs others.
type authority struct {
	cert *x509.Certificate
	key  crypto.Signer // nil where only the certificate is known
}

// credentials is what the Secret holds, read.
type credentials struct {
	trusted           []*x509.Certificate
	signer, successor *authority
	serving           []*x509.Certificate // leaf first
	servingKey        []byte              // PEM
}

// renew returns what the Secret must hold at the time now for a server of these host names and addresses, and whether that
// differs from data. What is missing, broken or about to end is made anew; what is good stays, byte for byte. A new authority is
// trusted for an hour before the first certificate that it signs is served, so that an API server that hears of it late still
// trusts ours.
func renew(data map[string][]byte, hosts []string, now time.Time) (out map[string][]byte, changed bool, err error) {
	c := read(data)
	c.trusted = slices.DeleteFunc(c.trusted, func(cert *x509.Certificate) bool { return now.After(cert.NotAfter) })
	if c.signer != nil && now.After(c.signer.cert.NotAfter) {
		c.signer = nil
	}
	if c.successor != nil && now.After(c.successor.cert.NotAfter) {
		c.successor = nil
	}
	switch {
	case c.signer == nil && c.successor != nil:
		c.signer, c.successor = c.successor, nil
	case c.signer == nil:
		if c.signer, err = newAuthority(now); err != nil {
			return nil, false, err
		}
		c.trusted = append(c.trusted, c.signer.cert)
	case c.successor != nil && !now.Before(c.successor.cert.NotBefore.Add(backdate+announce)):
		c.signer, c.successor = c.successor, nil
	case c.successor == nil && now.After(c.signer.cert.NotAfter.Add(-successionTime)):
		if c.successor, err = newAuthority(now); err != nil {
			return nil, false, err
		}
		c.trusted = append(c.trusted, c.successor.cert)
	}
	if !c.serves(hosts, now) {
		if err := c.issue(hosts, now); err != nil {
			return nil, false, err
		}
	}
	out = maps.Clone(data) // with what others keep there
	if out == nil {
		out = map[string][]byte{}
	}
	if err := c.write(out); err != nil {
		return nil, false, err
	}
	return out, !maps.EqualFunc(out, data, bytes.Equal), nil
}

// serves says whether the serving certificate is one of the signer for all hosts, matches its key, and lasts.
func (c *credentials) serves(hosts []string, now time.Time) bool {
	if len(c.serving) == 0 || c.servingKey == nil {
		return false
	}
	leaf := c.serving[0]
	key, err := readKey(c.servingKey)
	if err != nil || !samePublic(leaf.PublicKey, key.Public()) || leaf.CheckSignatureFrom(c.signer.cert) != nil {
		return false
	}
	if now.Before(leaf.NotBefore) || now.After(leaf.NotAfter.Add(-renewalTime)) {
		return false
	}
	return !slices.ContainsFunc(hosts, func(h string) bool { return leaf.VerifyHostname(h) != nil })
}

// issue makes a serving certificate.
func (c *credentials) issue(hosts []string, now time.Time) error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return fmt.Errorf("make a key: %w", err)
	}
	template, err := newTemplate(hosts[0], now, servingLife)
	if err != nil {
		return err
	}
	template.KeyUsage, template.ExtKeyUsage = x509.KeyUsageDigitalSignature, []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	for _, h := range hosts {
		if ip := net.ParseIP(h); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, h)
		}
	}
	leaf, err := sign(template, c.signer.cert, key.Public(), c.signer.key)
	if err != nil {
		return err
	}
	if c.servingKey, err = writeKey(key); err != nil {
		return err
	}
	c.serving = []*x509.Certificate{leaf, c.signer.cert}
	return nil
}

func newAuthority(now time.Time) (*authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("make a key: %w", err)
	}
	template, err := newTemplate(authorityName, now, authorityLife)
	if err != nil {
		return nil, err
	}
	template.KeyUsage, template.IsCA, template.BasicConstraintsValid = x509.KeyUsageCertSign, true, true
	template.MaxPathLenZero = true
	cert, err := sign(template, template, key.Public(), key)
	if err != nil {
		return nil, err
	}
	return &authority{cert, key}, nil
}

func newTemplate(name string, now time.Time, life time.Duration) (*x509.Certificate, error) {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 126))
	if err != nil {
		return nil, fmt.Errorf("make a serial number: %w", err)
	}
	return &x509.Certificate{
		SerialNumber: serial.Add(serial, big.NewInt(1)), Subject: pkix.Name{CommonName: name},
		NotBefore: now.Add(-backdate), NotAfter: now.Add(life),
	}, nil
}

func sign(template, parent *x509.Certificate, public crypto.PublicKey, key crypto.Signer) (*x509.Certificate, error) {
	der, err := x509.CreateCertificate(rand.Reader, template, parent, public, key)
	if err != nil {
		return nil, fmt.Errorf("sign the certificate of %s: %w", template.Subject.CommonName, err)
	}
	return x509.ParseCertificate(der)
}

// read takes what is usable from a Secret: whatever is broken, it is as if it were not there.
func read(data map[string][]byte) *credentials {
	c := &credentials{trusted: readCerts(data[keyTrusted]), serving: readCerts(data[keyServing])}
	if _, err := readKey(data[keyServingKey]); err == nil {
		c.servingKey = data[keyServingKey]
	}
	find := func(name string) *authority {
		key, err := readKey(data[name])
		if err != nil {
			return nil
		}
		for _, cert := range c.trusted {
			if cert.IsCA && samePublic(cert.PublicKey, key.Public()) {
				return &authority{cert, key}
			}
		}
		return nil
	}
	c.signer, c.successor = find(keySigner), find(keySuccessor)
	return c
}

// write puts the credentials into a Secret's content.
func (c *credentials) write(out map[string][]byte) (err error) {
	out[keyServing], out[keyServingKey], out[keyTrusted] = writeCerts(c.serving), c.servingKey, writeCerts(c.trusted)
	if out[keySigner], err = writeKey(c.signer.key); err != nil {
		return err
	}
	delete(out, keySuccessor)
	if c.successor != nil {
		out[keySuccessor], err = writeKey(c.successor.key)
	}
	return err
}

const (
	pemCertificate = "CERTIFICATE"
	pemKey         = "PRIVATE KEY"
)

// readCerts reads all certificates of a text in PEM form, leaving out what is none.
func readCerts(text []byte) (out []*x509.Certificate) {
	for {
		var block *pem.Block
		if block, text = pem.Decode(text); block == nil {
			return out
		}
		if cert, err := x509.ParseCertificate(block.Bytes); block.Type == pemCertificate && err == nil {
			out = append(out, cert)
		}
	}
}

func writeCerts(certs []*x509.Certificate) (out []byte) {
	for _, cert := range certs {
		out = append(out, pem.EncodeToMemory(&pem.Block{Type: pemCertificate, Bytes: cert.Raw})...)
	}
	return out
}

// readKey reads a key of ours. Others' keys are as good as none: they are replaced.
func readKey(text []byte) (crypto.Signer, error) {
	block, _ := pem.Decode(text)
	if block == nil || block.Type != pemKey {
		return nil, errors.New("no private key")
	}
	key, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		return nil, err
	}
	signer, ok := key.(*ecdsa.PrivateKey)
	if !ok {
		return nil, fmt.Errorf("a key of type %T", key)
	}
	return signer, nil
}

func writeKey(key crypto.Signer) ([]byte, error) {
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, fmt.Errorf("write a key: %w", err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: pemKey, Bytes: der}), nil
}

func samePublic(a, b crypto.PublicKey) bool {
	k, ok := a.(*ecdsa.PublicKey)
	return ok && k.Equal(b)
}
