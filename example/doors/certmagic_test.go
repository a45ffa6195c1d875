package doors

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"math/big"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/caddyserver/certmagic"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/wllock/wllock"
	"github.com/wllock/wllock/wllocktest"
)

const (
	domain     = "example.com"
	domainLock = "issue_cert_example.com"
)

// authority issues certificates, or refuses to.
type authority struct {
	orders atomic.Int32
	refuse func(order int32) error
}

func (a *authority) IssuerKey() string { return "authority" }

func (a *authority) Issue(_ context.Context, csr *x509.CertificateRequest) (*certmagic.IssuedCertificate, error) {
	if err := a.refuse(a.orders.Add(1)); err != nil {
		return nil, err
	}
	own, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	now := time.Now()
	template := &x509.Certificate{SerialNumber: big.NewInt(1), DNSNames: csr.DNSNames, NotBefore: now, NotAfter: now.Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, csr.PublicKey, own)
	if err != nil {
		return nil, err
	}
	return &certmagic.IssuedCertificate{Certificate: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})}, nil
}

// instance is one more that obtains certificates.
func instance(t *testing.T, l *wllock.Locker, dir string, from *authority) (*certmagic.Config, *CertMagic) {
	t.Helper()
	door := &CertMagic{Storage: &certmagic.FileStorage{Path: dir}, Locker: l, Name: "certmagic"}
	config := certmagic.Config{Storage: door, Issuers: []certmagic.Issuer{from}, Logger: zap.NewNop()}
	cache := certmagic.NewCache(certmagic.CacheOptions{
		GetConfigForCert: func(certmagic.Certificate) (*certmagic.Config, error) { return &config, nil }, Logger: zap.NewNop(),
	})
	t.Cleanup(cache.Stop)
	return certmagic.New(cache, config), door
}

func TestCertMagicOrdersACertificateOnce(t *testing.T) {
	t.Parallel()
	_, faults := wllocktest.NewWithFaults(t)
	dir := t.TempDir()
	from := &authority{refuse: func(int32) error { time.Sleep(20 * time.Millisecond); return nil }}
	var all sync.WaitGroup
	for range 3 {
		config, _ := instance(t, faults.Process(), dir, from)
		all.Go(func() {
			if err := config.ObtainCertSync(t.Context(), domain); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	require.EqualValues(t, 1, from.orders.Load())
}

// TestCertMagicTriesAgainWithTheLock: the lock is lost in the first try. Another instance has it for ten minutes, in which this one does not try.
func TestCertMagicTriesAgainWithTheLock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, faults := wllocktest.NewWithFaults(t)
		dir := t.TempDir()
		from := &authority{refuse: func(order int32) error {
			if order > 1 {
				return nil
			}
			faults.Lose("certmagic", domainLock)
			return errors.New("come back later")
		}}
		config, _ := instance(t, l, dir, from)
		obtained := make(chan error, 1)
		go func() { obtained <- config.ObtainCertAsync(t.Context(), domain) }()
		synctest.Wait()
		other := &CertMagic{Locker: faults.Process(), Name: "certmagic"}
		require.NoError(t, other.Lock(t.Context(), domainLock))
		time.Sleep(10 * time.Minute)
		require.EqualValues(t, 1, from.orders.Load())
		require.NoError(t, other.Unlock(t.Context(), domainLock))
		require.NoError(t, <-obtained)
		require.EqualValues(t, 2, from.orders.Load())
	})
}

// TestCertMagicUnlocksWhatIsItsOwn: two calls of one process, of which the first has lost the lock to the second.
func TestCertMagicUnlocksWhatIsItsOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, faults := wllocktest.NewWithFaults(t)
		c, other := &CertMagic{Locker: l, Name: "certmagic"}, &CertMagic{Locker: faults.Process(), Name: "certmagic"}
		require.NoError(t, c.Lock(t.Context(), domainLock))
		faults.Lose("certmagic", domainLock)
		require.NoError(t, c.Lock(t.Context(), domainLock))
		require.ErrorIs(t, c.Unlock(t.Context(), domainLock), wllock.ErrLeaseLost)
		taken, err := other.TryLock(t.Context(), domainLock)
		require.NoError(t, err)
		require.False(t, taken)
		require.NoError(t, c.Unlock(t.Context(), domainLock))
	})
}
