package server

import (
	"context"
	"fmt"
	"strconv"
	"strings"
)

// Commands returns how often each command was called since the last Flush, by its name in INFO commandstats, such as
// "set" or "client|setinfo". The server counts the calls that scripts make in the same figures.
func (s *Server) Commands(ctx context.Context) (map[string]int64, error) {
	text, err := s.client.Info(ctx, "commandstats").Result()
	if err != nil {
		return nil, fmt.Errorf("read commandstats: %w", err)
	}
	return parseCommands(text), nil
}

// parseCommands reads lines such as "cmdstat_set:calls=2,usec=9,...".
func parseCommands(text string) map[string]int64 {
	calls := make(map[string]int64)
	for line := range strings.Lines(text) {
		name, value, ok := strings.Cut(strings.TrimPrefix(strings.TrimSpace(line), "cmdstat_"), ":calls=")
		if !ok {
			continue
		}
		value, _, _ = strings.Cut(value, ",")
		if n, err := strconv.ParseInt(value, 10, 64); err == nil {
			calls[name] = n
		}
	}
	return calls
}

// Version returns "Redis" and redis_version.
func (s *Server) Version(ctx context.Context) (string, error) {
	text, err := s.client.Info(ctx, "server").Result()
	if err != nil {
		return "", err
	}
	for line := range strings.Lines(text) {
		if v, ok := strings.CutPrefix(strings.TrimSpace(line), "redis_version:"); ok {
			return "Redis " + v, nil
		}
	}
	return "", nil
}
