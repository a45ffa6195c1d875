// Package tlstest makes certificates for tests, puts TLS before servers that are without, and has the table of what a backend admits and
// refuses over TLS.
package tlstest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/wllock/wllock/internal/testproc"
)

// Authority issues certificates. Its files can be read by servers that run under other accounts.
type Authority struct {
	File string // its own certificate

	t       testing.TB
	dir     string
	cert    *x509.Certificate
	private *ecdsa.PrivateKey
}

// Pair are the files of a certificate and its key.
type Pair struct{ Cert, Key string }

// NewAuthority makes one that lasts as long as the test.
func NewAuthority(t testing.TB) *Authority {
	t.Helper()
	a := &Authority{t: t, dir: testproc.TempDir(t, "tlstest")}
	a.check(os.Chmod(a.dir, 0o755))
	var err error
	a.private, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	a.check(err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "authority " + rand.Text()}, KeyUsage: x509.KeyUsageCertSign,
		NotBefore: time.Now().Add(-48 * time.Hour), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &a.private.PublicKey, a.private)
	a.check(err)
	a.cert, err = x509.ParseCertificate(der)
	a.check(err)
	a.File = a.write("ca.pem", "CERTIFICATE", der)
	return a
}

// Issue makes a certificate, for servers and clients, for a name or an address.
func (a *Authority) Issue(name string) Pair { return a.until(name, time.Now().Add(time.Hour)) }

// Expired makes one that has expired yesterday.
func (a *Authority) Expired(name string) Pair { return a.until(name, time.Now().Add(-24*time.Hour)) }

func (a *Authority) until(name string, end time.Time) Pair {
	a.t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	a.check(err)
	serial, err := rand.Int(rand.Reader, big.NewInt(1<<62))
	a.check(err)
	template := &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: name}, NotBefore: time.Now().Add(-48 * time.Hour), NotAfter: end,
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	if ip := net.ParseIP(name); ip != nil {
		template.IPAddresses = []net.IP{ip}
	} else {
		template.DNSNames = []string{name}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, &private.PublicKey, a.private)
	a.check(err)
	raw, err := x509.MarshalPKCS8PrivateKey(private)
	a.check(err)
	return Pair{a.write(serial.String()+".crt", "CERTIFICATE", der), a.write(serial.String()+".key", "PRIVATE KEY", raw)}
}

func (a *Authority) write(name, kind string, content []byte) (path string) {
	a.t.Helper()
	path = filepath.Join(a.dir, name)
	a.check(os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: content}), 0o644))
	return path
}

func (a *Authority) check(err error) {
	a.t.Helper()
	if err != nil {
		a.t.Fatal(err)
	}
}

// Copy replaces a file by the content of another, as a rotation does.
func Copy(t testing.TB, from, to string) {
	t.Helper()
	text, err := os.ReadFile(from)
	if err == nil {
		err = os.WriteFile(to+".new", text, 0o644)
	}
	if err == nil {
		err = os.Rename(to+".new", to)
	}
	if err != nil {
		t.Fatal(err)
	}
}
