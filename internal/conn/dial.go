package conn

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/wllock/wllock/internal/keyless"
)

type dialer = func(ctx context.Context, network, addr string) (net.Conn, error)

// tlsSilence notes that the last handshake timed out, as it does with a server that waits for plain text. go-redis may report
// the end of a caller's context only, and drop what a dial has said.
type tlsSilence struct{ atomic.Bool }

// named returns the error of a call with that said, if it says nothing better.
func (s *tlsSilence) named(err error) error {
	if s == nil || !errors.Is(err, context.DeadlineExceeded) || errors.As(err, new(unreached)) || !s.Load() {
		return err
	}
	return overTLS(err)
}

func overTLS(err error) error {
	return keyless.Errorf("%w (over TLS, which the server may not speak on this port)", err)
}

// whereKey is that of a *string in the context of a dial, which notes there where it led.
type whereKey struct{}

// dialerOf bounds the dialer of a client's options, go-redis's own if they have none. Its errors are ErrUnreached.
func dialerOf(dial dialer, c *tls.Config, limit time.Duration, silence *tlsSilence) dialer {
	if dial == nil {
		dial = redis.NewDialer(&redis.Options{DialTimeout: limit, TLSConfig: c})
	}
	dial = bounded(dial, limit)
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := dial(ctx, network, addr)
		timeout, ok := errors.AsType[net.Error](err)
		silent := ok && timeout.Timeout() && c != nil
		silence.Store(silent)
		switch {
		case err == nil:
			if where, ok := ctx.Value(whereKey{}).(*string); ok {
				*where = conn.RemoteAddr().String()
			}
			return conn, nil
		case silent:
			err = overTLS(err)
		}
		return nil, unreached{err}
	}
}

// bounded makes a dialer return after limit at the latest, or when ctx ends. The dialer itself may respect neither:
// go-redis's own ignores ctx in a TLS handshake, and uses the time-out of the client that it was made for, also when it
// asks sentinels. A dial that nobody waits for any more closes its connection.
func bounded(dial dialer, limit time.Duration) dialer {
	type dialed struct {
		conn net.Conn
		err  error
	}
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		ctx, cancel := context.WithTimeout(ctx, limit)
		defer cancel()
		done := make(chan dialed) // without a buffer: what is sent was received
		go func() {
			conn, err := dial(ctx, network, addr)
			select {
			case done <- dialed{conn, err}:
			case <-ctx.Done():
				if err == nil {
					_ = conn.Close()
				}
			}
		}()
		select {
		case d := <-done:
			return d.conn, d.err
		case <-ctx.Done():
			return nil, keyless.Errorf("dial: %w", ctx.Err())
		}
	}
}
