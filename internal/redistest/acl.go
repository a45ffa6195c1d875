package redistest

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
)

// documented is the system that the pages of docs/ name in their ACL lines.
const documented = "shop"

// UserLine reads the ACL line that a page of docs/ recommends, for a system, which is also its user: a test with it shows that the
// line is enough, and what it does not allow.
func UserLine(t testing.TB, page, system string) []any {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(docs(t), page))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if rest, ok := strings.CutPrefix(strings.TrimSpace(line), "ACL SETUSER "); ok {
			args := []any{"ACL", "SETUSER"}
			for f := range strings.FieldsSeq(rest) {
				args = append(args, strings.ReplaceAll(f, documented, system))
			}
			return args
		}
	}
	t.Fatalf("docs/%s has no line ACL SETUSER", page)
	return nil
}

// docs is where the pages are, from any package.
func docs(t testing.TB) string {
	t.Helper()
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "docs", "redis.md")); err == nil {
			return filepath.Join(dir, "docs")
		}
		if dir == filepath.Dir(dir) {
			t.Fatal("no docs/ above this package")
		}
		dir = filepath.Dir(dir)
	}
}

// AddUser adds the user of such a line, with further rules, and returns what makes a client's options its own.
func (s *Server) AddUser(t testing.TB, page, system string, more ...any) func(*redis.Options) {
	t.Helper()
	line := UserLine(t, page, system)
	s.Do(append(slices.Clone(line), more...)...)
	return func(o *redis.Options) {
		o.Username, o.Password = line[2].(string), strings.TrimPrefix(line[4].(string), ">")
	}
}

// Hosted is what a client has at a hosted Redis that refuses all that ElastiCache, MemoryDB, Memorystore or Redis Enterprise does: see
// docs/managed.md. It is a user for the keys of a system, with rules that take from all commands.
func (s *Server) Hosted(system string, more ...any) func(*redis.Options) {
	s.t.Helper()
	rules := []any{
		"ACL", "SETUSER", "hosted", "reset", "on", ">change-me", "~" + system + ":*", "~wllock:" + system + ":*", "&wllock:" + system + ":*",
		"+@all", "-@admin", "-@dangerous",
		"-acl", "-bgrewriteaof", "-bgsave", "-client", "-cluster", "-command", "-config", "-debug", "-lastsave", "-latency", "-memory", "-migrate",
		"-module", "-monitor", "-object", "-psync", "-replicaof", "-save", "-shutdown", "-slaveof", "-slowlog", "-sync", "-wait",
	}
	s.Do(append(rules, more...)...)
	return func(o *redis.Options) { o.Username, o.Password = "hosted", "change-me" }
}
