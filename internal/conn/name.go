package conn

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"strconv"
	"syscall"
)

// naming returns a dialer whose connections have a name in CLIENT LIST. The client would set it by a command of its own, which is a
// round trip for each connection and needs an ACL rule more. HELLO, the first command anyway, takes the name as well.
func naming(dial dialer, name string) dialer {
	if name == "" {
		return dial
	}
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		c, err := dial(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		n := &named{Conn: c, name: name}
		if s, ok := c.(syscall.Conn); ok { // the pool looks for it: by it, it finds connections that were closed
			return &namedSocket{n, s}, nil
		}
		return n, nil
	}
}

// named is a connection whose first command gets a name if it is HELLO.
type named struct {
	net.Conn
	name  string
	begun bool
}

// NetConn returns the connection within, as tls.Conn does.
func (n *named) NetConn() net.Conn { return n.Conn }

// Write implements net.Conn.
func (n *named) Write(b []byte) (int, error) {
	if n.begun {
		return n.Conn.Write(b)
	}
	n.begun = true
	hello := withName(b, n.name)
	if hello == nil {
		return n.Conn.Write(b)
	}
	if _, err := n.Conn.Write(hello); err != nil {
		return 0, err
	}
	return len(b), nil
}

type namedSocket struct {
	*named
	syscall.Conn
}

// withName adds SETNAME to a HELLO that is all of b and has none yet; nil: b is something else.
func withName(b []byte, name string) []byte {
	head, rest, ok := bytes.Cut(b, []byte("\r\n"))
	if !ok || len(head) < 2 || head[0] != '*' || !bytes.HasPrefix(bytes.ToLower(rest), []byte("$5\r\nhello\r\n")) {
		return nil
	}
	words, err := strconv.Atoi(string(head[1:]))
	if err != nil || bytes.Count(rest, []byte("\r\n")) != 2*words || bytes.Contains(bytes.ToLower(rest), []byte("\r\nsetname\r\n")) {
		return nil // a password with a line break in it looks like more words
	}
	return fmt.Appendf(nil, "*%d\r\n%s$7\r\nSETNAME\r\n$%d\r\n%s\r\n", words+2, rest, len(name), name)
}
