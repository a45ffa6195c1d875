package server

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"regexp"
	"strings"
)

// Seen is what MONITOR showed: how often clients sent each command, and how often scripts called it.
type Seen struct {
	Clients map[string]int64
	Scripts map[string]int64
}

const endMark = "end of the benchmark's monitor"

// monitored is a line such as `+1339518083.107412 [0 127.0.0.1:60866] "set" "k" "v"`; of a script's call, the client is "lua".
var monitored = regexp.MustCompile(`^\+\S+ \[\d+ (\S+)\] "([^"]+)"`)

// Monitor runs f and returns the commands that reached a redis-server meanwhile; of several the first, as all get the same. MONITOR
// slows the server down: use it to count commands, not to time them.
func (s *Server) Monitor(ctx context.Context, f func() error) (Seen, error) {
	server := s.redis[0]
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", server.Options().Addr)
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
	if err = f(); err == nil {
		err = server.Echo(ctx, endMark).Err() // the server shows what came before, and then this
	}
	if err != nil {
		_ = conn.Close() // the mark may never come: do not wait for it
	}
	got := <-seen
	_ = conn.Close()
	return got, err
}

// readMonitor counts lines until the end mark, or the end of the connection.
func readMonitor(lines *bufio.Reader) Seen {
	seen := Seen{Clients: make(map[string]int64), Scripts: make(map[string]int64)}
	for {
		line, err := lines.ReadString('\n')
		if err != nil || strings.Contains(line, endMark) {
			return seen
		}
		if command := monitored.FindStringSubmatch(line); command == nil {
			continue
		} else if name := strings.ToLower(command[2]); command[1] == "lua" {
			seen.Scripts[name]++
		} else {
			seen.Clients[name]++
		}
	}
}
