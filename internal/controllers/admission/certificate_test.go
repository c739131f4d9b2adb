package admission

import (
	"crypto/tls"
	"crypto/x509"
	"maps"
	"testing"
	"time"
)

var (
	testHosts = []string{"admission.kai-scheduler.svc", "127.0.0.1"}
	testStart = time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
)

// renewed is renew, which must not fail and have nothing to do a second time.
func renewed(t *testing.T, data map[string][]byte, now time.Time) (map[string][]byte, bool) {
	t.Helper()
	out, changed, err := renew(data, testHosts, now)
	if err != nil {
		t.Fatal(err)
	}
	if _, again, err := renew(out, testHosts, now); err != nil || again {
		t.Fatalf("asked again, it changes more: %v", err)
	}
	return out, changed
}

// trusts fails the test unless who trusts the bundle of one Secret believes a server of the hosts (of testHosts, if none are given)
// that has another.
func trusts(t *testing.T, client, server map[string][]byte, now time.Time, hosts ...string) {
	t.Helper()
	cert, err := tls.X509KeyPair(server[keyServing], server[keyServingKey])
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(client[keyTrusted]) {
		t.Fatal("nobody is trusted")
	}
	if hosts == nil {
		hosts = testHosts
	}
	for _, host := range hosts {
		if _, err := cert.Leaf.Verify(x509.VerifyOptions{Roots: roots, DNSName: host, CurrentTime: now}); err != nil {
			t.Fatalf("%s at %s: %v", host, now, err)
		}
	}
}

// TestRenew goes through thirty years, week by week and around changes hour by hour: API servers that heard of the bundle an hour
// late trust whatever is served, and certificates never come near their end.
func TestRenew(t *testing.T) {
	t.Parallel()
	data, changed := renewed(t, nil, testStart)
	if !changed {
		t.Fatal("nothing was made")
	}
	leaves, authorities := 1, 1
	for now := testStart; now.Before(testStart.Add(30 * 365 * 24 * time.Hour)); {
		before := data // an hour old or more
		data, changed = renewed(t, data, now)
		trusts(t, before, data, now) // an API server that is late
		trusts(t, data, before, now) // a replica that is late
		if !changed {
			now = now.Add(7 * 24 * time.Hour)
			continue
		}
		if string(data[keyServing]) != string(before[keyServing]) {
			leaves++
		}
		if string(data[keySigner]) != string(before[keySigner]) {
			authorities++
		}
		if leaf := readCerts(data[keyServing])[0]; leaf.NotAfter.Sub(now) < renewalTime-8*24*time.Hour {
			t.Fatalf("at %s the certificate ends at %s", now, leaf.NotAfter)
		}
		if n := len(readCerts(data[keyTrusted])); n > 2 {
			t.Fatalf("%d authorities are trusted", n)
		}
		now = now.Add(61 * time.Minute)
	}
	if authorities != 4 || leaves < 40 || leaves > 60 {
		t.Errorf("%d certificates by %d authorities in thirty years", leaves, authorities)
	}
}

// TestRepair: whatever is wrong with the Secret, one call makes it whole, and keeps what others put there.
func TestRepair(t *testing.T) {
	t.Parallel()
	good, _ := renewed(t, nil, testStart)
	other, _ := renewed(t, nil, testStart)
	for name, spoil := range map[string]func(map[string][]byte){
		"no serving certificate": func(d map[string][]byte) { delete(d, keyServing) },
		"no key":                 func(d map[string][]byte) { delete(d, keyServingKey) },
		"another's key":          func(d map[string][]byte) { d[keyServingKey] = other[keyServingKey] },
		"another's certificate":  func(d map[string][]byte) { d[keyServing], d[keyServingKey] = other[keyServing], other[keyServingKey] },
		"no authority":           func(d map[string][]byte) { delete(d, keyTrusted) },
		"no authority's key":     func(d map[string][]byte) { delete(d, keySigner) },
		"another's authority":    func(d map[string][]byte) { d[keyTrusted] = other[keyTrusted] },
		"only KAI's part":        func(d map[string][]byte) { delete(d, keyTrusted); delete(d, keySigner) },
		"noise": func(d map[string][]byte) {
			d[keyServing], d[keySigner], d[keyTrusted] = []byte("x"), []byte("-----BEGIN PRIVATE KEY-----\neA==\n-----END PRIVATE KEY-----"), []byte{0}
		},
		"a successor's noise": func(d map[string][]byte) { d[keySuccessor] = []byte("x") },
	} {
		data := maps.Clone(good)
		data["note"] = []byte("keep")
		spoil(data)
		out, changed := renewed(t, data, testStart.Add(time.Hour))
		if !changed || string(out["note"]) != "keep" {
			t.Errorf("%s: changed %t, note %q", name, changed, out["note"])
		}
		trusts(t, out, out, testStart.Add(time.Hour))
	}
	out, _, err := renew(good, append(testHosts, "another.host"), testStart)
	if err != nil {
		t.Fatal(err)
	}
	if readCerts(out[keyServing])[0].VerifyHostname("another.host") != nil || string(out[keyTrusted]) != string(good[keyTrusted]) {
		t.Error("a further host needs a new certificate by the same authority")
	}
}
