package conn

import (
	"context"
	"fmt"
	"net"
	"time"
)

type dialer = func(ctx context.Context, network, addr string) (net.Conn, error)

// bounded makes a caller's dialer return after limit at the latest, or when ctx ends. The dialer itself may respect
// neither: go-redis's own uses the time-out of the client that it was made for, in a handshake and when it asks
// sentinels. A dial that nobody waits for any more closes its connection.
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
			return nil, fmt.Errorf("dial: %w", ctx.Err())
		}
	}
}
