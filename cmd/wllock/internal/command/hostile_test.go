//go:build linux

package command

import (
	"bytes"
	"io"
	"net"
	"testing"

	"github.com/stretchr/testify/require"
)

// hostile is a server that answers everything with an error full of control sequences.
func hostile(t *testing.T) (addr string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer func() { _ = c.Close() }()
				request := make([]byte, 1<<16)
				for n := 0; err == nil; n, err = c.Read(request) {
					for range bytes.Count(request[:n], []byte("\n*")) + min(n, 1) {
						_, _ = io.WriteString(c, "-ERR \x1b]0;owned\a\x1b[2J\x1b[1;1Hshop:n:1 is free \u009b31m\r\n")
					}
				}
			}()
		}
	}()
	return l.Addr().String()
}

// What a server answers, and what libraries log of it, moves no cursor.
func TestAServersWordsMoveNoCursor(t *testing.T) {
	t.Parallel()
	env := shop("redis://" + hostile(t))
	for _, args := range [][]string{{"who", "n", "1"}, {"ls"}, {"top", "--once"}, {"run", "n", "1", "--", "true"},
		{"break", "n", "1", "--yes", "--reason", "x"}, {"doctor"}, {"doctor", "--json"}} {
		_, out, err := run(t, env, append([]string{"--timeout", "2s"}, args...)...)
		require.Contains(t, out+err, "shop:n:1 is free", args)
		require.NotRegexp(t, "[^\\P{Cc}\n]|\\p{Cf}", out+err, args)
	}
}
