package conn

import (
	"context"
	"net"
	"syscall"
	"time"
)

// deferring returns a dialer that never fails: the connection does, at its first use, with the error of the dial. go-redis'
// pool counts failed dials. After as many as it has places for connections it answers all calls with the last error and dials
// once a second by itself, so that nobody would find a server that is back before; and it logs each of them.
func deferring(dial dialer) dialer {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		c, err := dial(ctx, network, addr)
		if err != nil {
			return undialed{undone{err}}, nil
		}
		return c, nil
	}
}

// undone is the error of a dial, once more than it is wrapped: go-redis unwraps errors of new connections once.
type undone struct{ error }

func (u undone) Unwrap() error { return u.error }

// undialed is a connection that was never made.
type undialed struct{ err error }

// Read implements net.Conn.
func (u undialed) Read([]byte) (int, error) { return 0, u.err }

// Write implements net.Conn.
func (u undialed) Write([]byte) (int, error) { return 0, u.err }

// Close implements net.Conn.
func (undialed) Close() error { return nil }

// LocalAddr implements net.Conn.
func (undialed) LocalAddr() net.Addr { return new(net.TCPAddr) }

// RemoteAddr implements net.Conn.
func (undialed) RemoteAddr() net.Addr { return new(net.TCPAddr) }

// SetDeadline implements net.Conn.
func (u undialed) SetDeadline(time.Time) error { return u.err }

// SetReadDeadline implements net.Conn.
func (u undialed) SetReadDeadline(time.Time) error { return u.err }

// SetWriteDeadline implements net.Conn.
func (u undialed) SetWriteDeadline(time.Time) error { return u.err }

// SyscallConn implements syscall.Conn. By it the pool finds out before the first use, if whoever had it dialed has left.
func (u undialed) SyscallConn() (syscall.RawConn, error) { return nil, u.err }
