package zklock

import (
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/wllock/wllock/internal/openurl"
	"github.com/wllock/wllock/internal/passfile"
)

// Option changes how a Backend works.
type Option func(*settings)

type settings struct {
	log      *slog.Logger
	root     string        // of all nodes; "" is the server's own
	timeout  time.Duration // of all sessions; 0: the TTL of the leases
	auth     bool
	user     string
	password string
	file     string
	acl      []zk.ACL
	dial     dialer // for TLS; nil: without

	// for tests
	sequences int64 // how many requests of a node are in line
	persist   bool  // parents are no containers
	// before a parent that is not used is deleted; 0: sweepPause
	sweepPause time.Duration
	patience   time.Duration // with an answer, in place of the silence that drops a connection; 0: that
}

// DefaultRoot is the node below which locks are kept, unless WithRoot or a URL names another.
const DefaultRoot = "/wllock"

// WithLogger sets the logger for warnings: a lost session, watches that could not be set again (default: none). Nil is refused.
func WithLogger(log *slog.Logger) Option { return func(s *settings) { s.log = log } }

// WithRoot sets the node below which all locks are kept (default [DefaultRoot]). It is created if it is missing. The path of a URL overrides it.
func WithRoot(path string) Option { return func(s *settings) { s.root = path } }

// WithSessionTimeout makes the Backend keep one session only, with this timeout, for leases of any TTL that is at least as long (default: a
// session for each TTL in use, whose timeout is that TTL). A server grants timeouts between 2 and 20 times its tickTime, and changes others to
// the nearest of these. Choose a timeout as long as the TTL of the leases. With a longer TTL the lock is still free after the session's timeout,
// but a Locker with less than a third of its TTL left passes no more turns under a lease.
func WithSessionTimeout(d time.Duration) Option { return func(s *settings) { s.timeout = d } }

// WithAuth sets the user and password of the digest scheme (default: none). Without WithACL, only that user then has rights to the nodes.
func WithAuth(user, password string) Option {
	return func(s *settings) { s.auth, s.user, s.password, s.file = true, user, password, "" }
}

// WithAuthFile is WithAuth with a password that is read from a file for every new session: one line of UTF-8. White space at its end and a byte
// order mark are not part of the password.
func WithAuthFile(user, path string) Option {
	return func(s *settings) { s.auth, s.user, s.password, s.file = true, user, "", path }
}

// WithACL sets the access rights of the nodes that are created (default: any client may do anything, or with WithAuth only that user). All
// clients that share locks need the rights to create, delete, read and write.
func WithACL(acl ...zk.ACL) Option { return func(s *settings) { s.acl = slices.Clone(acl) } }

func newSettings(opts []Option) (settings, error) {
	s := settings{log: slog.New(slog.DiscardHandler), root: DefaultRoot, sequences: mostSequences}
	if err := openurl.Apply("zklock", &s, opts); err != nil {
		return s, err
	}
	root, err := cleanRoot(s.root)
	s.root = root
	switch {
	case err != nil:
		return s, err
	case s.log == nil:
		return s, errors.New("zklock: WithLogger(nil): want a logger")
	case s.timeout < 0 || s.timeout > 0 && s.timeout < time.Millisecond:
		return s, fmt.Errorf("zklock: WithSessionTimeout(%v): want at least a millisecond", s.timeout)
	case s.auth && (s.user == "" || strings.Contains(s.user, ":")):
		return s, errors.New("zklock: the user of WithAuth is empty or contains a colon")
	case s.acl == nil && s.auth:
		s.acl = zk.AuthACL(zk.PermAll)
	case s.acl == nil:
		s.acl = zk.WorldACL(zk.PermAll)
	}
	return s, nil
}

// cleanRoot returns a path without a slash at its end.
func cleanRoot(path string) (string, error) {
	root := strings.TrimRight(path, "/")
	if root == "" {
		return "", nil
	}
	for i, part := range strings.Split(root, "/") {
		if i == 0 && part != "" || i > 0 && (part == "" || part == "." || part == ".." || strings.ContainsFunc(part, refused)) {
			return "", fmt.Errorf("zklock: %q is not a path of ZooKeeper", path)
		}
	}
	return root, nil
}

// credentials returns what is sent to a new session; nil: nothing.
func (s *settings) credentials() ([]byte, error) {
	if !s.auth {
		return nil, nil
	}
	password := s.password
	if s.file != "" {
		var err error
		if password, err = passfile.Read(s.file); err != nil {
			return nil, fmt.Errorf("zklock: the password file: %w", err)
		}
	}
	return []byte(s.user + ":" + password), nil
}
