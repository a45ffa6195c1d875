// Package tlsfile makes settings of TLS from the parameters of a backend's URL, which are alike for all backends:
//
//	tls_ca           PEM file of the authorities that vouch for the server; without it those of the system
//	tls_cert         PEM file of a client certificate
//	tls_key          PEM file of its key
//	tls_server_name  what the server's certificate must name; without it the host that is connected to
package tlsfile

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"

	"github.com/wllock/wllock/internal/passfile"
)

// The names of the parameters. None of their values is a secret.
const (
	CA         = "tls_ca"
	Cert       = "tls_cert"
	Key        = "tls_key"
	ServerName = "tls_server_name"

	// Names are all of them, for messages.
	Names = CA + ", " + Cert + ", " + Key + ", " + ServerName
)

// Files are the values of the parameters, "" where there is none.
type Files struct{ CA, Cert, Key, ServerName string }

// Field returns the field for a parameter's value, nil if the parameter is none of ours.
func (f *Files) Field(name string) *string {
	return map[string]*string{CA: &f.CA, Cert: &f.Cert, Key: &f.Key, ServerName: &f.ServerName}[name]
}

// Take takes the parameters out of the query of a URL, and leaves the rest as it is written: some drivers do not decode theirs. It
// reads the files, to find out at once what is wrong with them. Where scheme is not secure, all parameters are refused.
func Take(query, scheme string, secure bool) (f Files, rest string, err error) {
	var others []string
	for part := range strings.SplitSeq(query, "&") {
		name, value, _ := strings.Cut(part, "=")
		field := f.Field(name)
		if field == nil {
			others = append(others, part)
			continue
		}
		text, err := url.QueryUnescape(value)
		switch {
		case !secure:
			return f, "", fmt.Errorf("the parameter %s is for TLS, which %s:// is without", name, scheme)
		case *field != "":
			return f, "", fmt.Errorf("the parameter %s is given twice", name)
		case err != nil || text == "":
			return f, "", fmt.Errorf("the parameter %s has no value", name)
		}
		*field = text
	}
	_, err = f.Config("")
	return f, strings.Join(others, "&"), err
}

// Renamed returns a query of etcdlock with the names above in place of those that it had first: ca, cert, key, server-name.
func Renamed(query string) string {
	parts := strings.Split(query, "&")
	for i, part := range parts {
		switch name, value, _ := strings.Cut(part, "="); name {
		case "ca", "cert", "key":
			parts[i] = "tls_" + part
		case "server-name":
			parts[i] = ServerName + "=" + value
		}
	}
	return strings.Join(parts, "&")
}

// Config reads the files as they are now, for a connection to host. It is called for each connection, so what is replaced on disk
// is used from the next one on.
func (f Files) Config(host string) (*tls.Config, error) {
	c := &tls.Config{ServerName: cmp.Or(f.ServerName, host), MinVersion: tls.VersionTLS12}
	if f.CA != "" {
		text, err := passfile.Content(f.CA)
		if err != nil {
			return nil, fmt.Errorf("the parameter %s: %w", CA, err)
		}
		c.RootCAs = x509.NewCertPool()
		if !c.RootCAs.AppendCertsFromPEM(text) {
			return nil, fmt.Errorf("the parameter %s: no certificate in PEM form in %q", CA, f.CA)
		}
	}
	if (f.Cert == "") != (f.Key == "") {
		return nil, errors.New("the parameters " + Cert + " and " + Key + " need each other")
	}
	if f.Cert != "" {
		pair, err := Pair(f.Cert, f.Key)
		if err != nil {
			return nil, fmt.Errorf("the parameters %s %q and %s %q: %w", Cert, f.Cert, Key, f.Key, err)
		}
		// It is sent whatever authorities the server names: then the server says what it has against it.
		c.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &pair, nil }
	}
	return c, nil
}

// Pair reads a certificate and its key. Its errors show the paths, unless what is in the files is wrong.
func Pair(cert, key string) (tls.Certificate, error) {
	certText, err := passfile.Content(cert)
	if err != nil {
		return tls.Certificate{}, err
	}
	keyText, err := passfile.Content(key)
	if err != nil {
		return tls.Certificate{}, err
	}
	return tls.X509KeyPair(certText, keyText)
}

// Dial connects to addr and shakes hands.
func (f Files) Dial(ctx context.Context, network, addr string) (net.Conn, error) {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, err
	}
	c, err := f.Config(host)
	if err != nil {
		return nil, err
	}
	return (&tls.Dialer{Config: c}).DialContext(ctx, network, addr)
}
