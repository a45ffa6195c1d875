package server

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"strings"
)

// Seen is what MONITOR showed: how often clients sent each command, and how often scripts called it.
type Seen struct {
	Clients map[string]int64
	Scripts map[string]int64
}

// Monitor runs f and returns the commands that reached the server meanwhile. MONITOR slows the server down: use it to count
// commands, not to time them.
func (s *Server) Monitor(ctx context.Context, f func() error) (Seen, error) {
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", s.Addr)
	if err != nil {
		return Seen{}, err
	}
	lines := bufio.NewReaderSize(conn, 1<<16)
	if _, err = conn.Write([]byte("MONITOR\r\n")); err == nil {
		_, err = lines.ReadString('\n') // +OK
	}
	if err != nil {
		return Seen{}, fmt.Errorf("monitor: %w", err)
	}
	seen := make(chan Seen, 1)
	go func() { seen <- readMonitor(lines) }()
	err = f()
	// The server writes what it has seen before it answers this, and the end mark is in it.
	if markErr := s.client.Echo(ctx, endMark).Err(); err == nil && markErr != nil {
		err = markErr
	}
	if err != nil {
		_ = conn.Close() // the mark may never come: do not wait for it
	}
	got := <-seen
	_ = conn.Close()
	return got, err
}

const endMark = "end of the benchmark's monitor"

// readMonitor counts lines until the end mark, or the end of the connection.
func readMonitor(lines *bufio.Reader) Seen {
	seen := Seen{Clients: make(map[string]int64), Scripts: make(map[string]int64)}
	for {
		line, err := lines.ReadString('\n')
		if err != nil || strings.Contains(line, endMark) {
			return seen
		}
		seen.add(line)
	}
}

// add reads a line such as `+1339518083.107412 [0 127.0.0.1:60866] "set" "k" "v"`; of a script's call, the client is "lua".
func (s *Seen) add(line string) {
	_, rest, ok := strings.Cut(line, "[")
	client, rest, ok2 := strings.Cut(rest, "] \"")
	name, _, ok3 := strings.Cut(rest, "\"")
	if !ok || !ok2 || !ok3 {
		return
	}
	name = strings.ToLower(name)
	if strings.HasSuffix(client, " lua") {
		s.Scripts[name]++
	} else {
		s.Clients[name]++
	}
}
