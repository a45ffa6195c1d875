package redislock

import (
	"bufio"
	"errors"
	"io"
	"net"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock/internal/conn"
	"github.com/wllock/wllock/internal/redistest"
)

// scriptLink is a connection that runs scripts. It is subscribed as well, so that what a script publishes is read no later
// than the reply to the command after it: a client library would deliver it at a time of its own. Requests are buffered
// until flush; replies come in their order.
type scriptLink struct {
	conn   net.Conn
	r      *bufio.Reader
	w      *bufio.Writer
	shas   map[string]string // of what is loaded, by the script's name
	digits []byte
	pushed []pushedMessage // since it was last emptied
}

type pushedMessage struct{ channel, text string }

// liveProcess begins the names of processes that hear messages, liveChannels matches their channels.
const (
	liveProcess  = "live"
	liveChannels = prefix + "*:" + liveProcess + "*"
)

// A script that is named with fewOnly does for fewMost waiters or readers what the others do for 64: more than a sequence has.
const (
	fewOnly = " few"
	fewMost = 2
)

// newScriptLink connects, subscribes, and loads the scripts; change gives each text before it is loaded.
func newScriptLink(t testing.TB, s *redistest.Server, change func(name, text string) string) *scriptLink {
	t.Helper()
	c, err := net.Dial("unix", s.Socket)
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close() })
	l := &scriptLink{conn: c, r: bufio.NewReaderSize(c, 1<<16), w: bufio.NewWriterSize(c, 1<<16), shas: make(map[string]string)}
	l.must(t, "HELLO", "3")
	l.must(t, "PSUBSCRIBE", liveChannels)
	for _, script := range allScripts {
		text := change(script.Name, script.Text)
		l.shas[script.Name] = l.must(t, "SCRIPT", "LOAD", text)
		l.shas[script.Name+fewOnly] = l.must(t, "SCRIPT", "LOAD", strings.Replace(text, "local MOST = 64", "local MOST = "+strconv.Itoa(fewMost), 1))
	}
	l.shas[viewScript.Name] = l.must(t, "SCRIPT", "LOAD", viewScript.Text)
	return l
}

// must runs one command.
func (l *scriptLink) must(t testing.TB, args ...any) string {
	t.Helper()
	l.send(args...)
	l.flush(t)
	if args[0] == "PSUBSCRIBE" { // its reply is a push
		l.send("PING")
		l.flush(t)
	}
	text, err := l.receive()
	require.NoError(t, err)
	return text
}

func (l *scriptLink) call(c *conn.Call, few bool) {
	name := c.Script.Name
	if few {
		name += fewOnly
	}
	l.header('*', len(c.Args))
	l.argument(c.Args[0])
	l.argument(l.shas[name])
	for _, a := range c.Args[2:] {
		l.argument(a)
	}
}

func (l *scriptLink) send(args ...any) {
	l.header('*', len(args))
	for _, a := range args {
		l.argument(a)
	}
}

func (l *scriptLink) header(kind byte, n int) {
	_ = l.w.WriteByte(kind) // an error stays in w, and flush returns it
	l.digits = strconv.AppendInt(l.digits[:0], int64(n), 10)
	_, _ = l.w.Write(l.digits)
	_, _ = l.w.WriteString("\r\n")
}

func (l *scriptLink) argument(a any) {
	var s string
	switch a := a.(type) {
	case string:
		s = a
	case *string:
		s = *a
	case int:
		s = strconv.Itoa(a)
	case int64:
		s = strconv.FormatInt(a, 10)
	case uint64:
		s = strconv.FormatUint(a, 10)
	default:
		panic(a)
	}
	l.header('$', len(s))
	_, _ = l.w.WriteString(s)
	_, _ = l.w.WriteString("\r\n")
}

func (l *scriptLink) flush(t testing.TB) {
	t.Helper()
	require.NoError(t, l.w.Flush())
}

// receive returns the next reply and keeps the messages before it.
func (l *scriptLink) receive() (string, error) {
	for {
		line, err := l.line()
		if err != nil {
			return "", err
		}
		switch line[0] {
		case '>':
			if err = l.push(line); err != nil {
				return "", err
			}
		case '%', '*': // only HELLO answers so
			for range items(line) {
				if _, err = l.receive(); err != nil {
					return "", err
				}
			}
			return "", nil
		default:
			return l.value(line)
		}
	}
}

func (l *scriptLink) push(line string) error {
	words := make([]string, items(line))
	for i := range words {
		var err error
		if words[i], err = l.receive(); err != nil {
			return err
		}
	}
	if words[0] == "pmessage" {
		l.pushed = append(l.pushed, pushedMessage{words[2], words[3]})
	}
	return nil
}

func (l *scriptLink) value(line string) (string, error) {
	switch line[0] {
	case '-':
		return "", errors.New(line[1:])
	case '$':
		n, err := strconv.Atoi(line[1:])
		if err != nil || n < 0 {
			return "", err
		}
		text := make([]byte, n+2)
		_, err = io.ReadFull(l.r, text)
		return string(text[:n]), err
	default:
		return line[1:], nil
	}
}

func (l *scriptLink) line() (string, error) {
	line, err := l.r.ReadString('\n')
	return strings.TrimRight(line, "\r\n"), err
}

// items is how many replies follow this line.
func items(line string) int {
	n, _ := strconv.Atoi(line[1:])
	if line[0] == '%' {
		return 2 * n
	}
	return n
}
