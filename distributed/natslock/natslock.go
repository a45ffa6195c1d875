package natslock

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/distributed/driver/register"
	"github.com/wllock/wllock/internal/keyless"
)

// Backend is the distributed tier on a stream. It is safe for concurrent use. Make one per process, for all its Lockers.
type Backend struct {
	*register.Backend
	store *store
}

// Format is the version of the messages. A later version has its number in them, and is refused.
const Format = register.Format

// Stream returns what the servers say of the stream, which is made if it is not there.
func (b *Backend) Stream(ctx context.Context) (*jetstream.StreamInfo, error) {
	stream, ctx, cancel, err := b.store.exchange(ctx)
	defer cancel()
	if err != nil {
		return nil, err
	}
	info, err := stream.Info(ctx)
	if err != nil {
		return nil, b.store.failed(err)
	}
	return info, nil
}

// Ping implements distributed.Backend: it locks and releases a random key, reads it, and hears of that.
func (b *Backend) Ping(ctx context.Context) error {
	key := rand.Text()
	changes, err := b.store.listen(key)
	if err != nil {
		return cmp.Or(b.PingKey(ctx, key), err) // that knows whether b is closed
	}
	defer func() { _ = changes.Unsubscribe() }() // it fails on a closed connection
	if err = b.PingKey(ctx, key); err == nil {
		_, err = b.store.Get(ctx, key)
	}
	if err == nil {
		ctx, cancel := context.WithTimeout(ctx, exchangeTime)
		defer cancel()
		if _, err = changes.NextMsgWithContext(ctx); err != nil {
			err = failed(err) // the connection is well: it has just answered
		}
	}
	if why := b.store.conn.LastError(); err != nil && errors.Is(why, nats.ErrPermissionViolation) { // of some request since it connected: the client does not say of which
		return distributed.Unavailable("natslock", why, distributed.ErrRefused)
	}
	return err
}

// Close implements distributed.Backend.
func (b *Backend) Close() error {
	err := b.Backend.Close()
	if b.store.own {
		b.store.conn.Close()
	}
	return err
}

// store is a stream as a register.Store.
type store struct {
	set  settings
	conn *nats.Conn
	own  bool // Close closes it
	js   jetstream.JetStream

	mu     sync.Mutex
	stream jetstream.Stream // guarded by mu; nil: not found or made yet
}

var (
	_ register.Watcher = (*store)(nil)
	_ register.Lister  = (*store)(nil)
)

const (
	// exchangeTime bounds an exchange with a server that is silent.
	exchangeTime = 2 * time.Second
	// connectTime is how long an exchange waits for a connection.
	connectTime = exchangeTime / 2
)

// exchange begins one: it waits for a connection, and for the stream, which is made if it is not there.
func (s *store) exchange(ctx context.Context) (jetstream.Stream, context.Context, context.CancelFunc, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), exchangeTime)
	if !s.conn.IsConnected() {
		connected := s.conn.StatusChanged(nats.CONNECTED, nats.CLOSED)
		if !s.conn.IsConnected() {
			select {
			case <-connected:
			case <-time.After(connectTime):
			}
		}
		s.conn.RemoveStatusListener(connected)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stream != nil {
		return s.stream, ctx, cancel, nil
	}
	stream, err := s.js.Stream(ctx, s.set.stream)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		stream, err = s.js.CreateStream(ctx, jetstream.StreamConfig{
			Name: s.set.stream, Subjects: []string{s.set.stream + ".>"}, Description: "locks of github.com/wllock/wllock",
			MaxMsgsPerSubject: 1, AllowMsgTTL: true, Replicas: s.set.replicas, FirstSeq: uint64(time.Now().UnixMicro()),
			RePublish: &jetstream.RePublish{Source: s.set.stream + ".>", Destination: s.set.stream + changed + ".>"},
		})
		if errors.Is(err, jetstream.ErrStreamNameAlreadyInUse) { // another process was quicker
			stream, err = s.js.Stream(ctx, s.set.stream)
		}
	}
	if err != nil {
		return nil, ctx, cancel, failed(err)
	}
	c := stream.CachedInfo().Config
	if c.MaxMsgsPerSubject != 1 || !c.AllowMsgTTL || c.AllowDirect || c.MaxAge != 0 || c.RePublish == nil || c.RePublish.Destination != s.set.stream+changed+".>" {
		why := keyless.Errorf("the stream %s is not one of locks: want max_msgs_per_subject 1, allow_msg_ttl, no max_age, no allow_direct, and that it "+
			"republishes %[1]s.> to %[1]s%s.>", s.set.stream, changed)
		return nil, ctx, cancel, distributed.Unavailable("natslock", why, distributed.ErrRefused)
	}
	s.stream = stream
	return stream, ctx, cancel, nil
}

// subject is that of a key.
func (s *store) subject(key string) string { return s.set.stream + "." + token(key) }

// changed follows the name of the stream where the server publishes what it has stored.
const changed = "-changes"

// token is a key as a part of a subject. What cannot stand there is escaped.
func token(key string) string { return tokens.Replace(url.QueryEscape(key)) }

// tokens keeps the parts of a key readable.
var tokens = strings.NewReplacer(".", "%2E", "%3A", ":")

// Get implements register.Store.
func (s *store) Get(ctx context.Context, key string) (register.Document, error) {
	stream, ctx, cancel, err := s.exchange(ctx)
	defer cancel()
	if err != nil {
		return register.Document{}, err
	}
	msg, err := stream.GetLastMsgForSubject(ctx, s.subject(key))
	switch {
	case errors.Is(err, jetstream.ErrMsgNotFound):
		return register.Document{}, nil
	case err != nil:
		return register.Document{}, s.failed(err)
	}
	return register.Document{Data: msg.Data, Version: version(msg.Sequence)}, nil
}

func version(sequence uint64) register.Version {
	return register.Version(strconv.FormatUint(sequence, 10))
}

// Put implements register.Store. No message is deleted: a server that is killed may forget that it was, and count on from the last that is left.
func (s *store) Put(ctx context.Context, key string, data []byte, from register.Version, keep time.Duration) (register.Version, error) {
	_, ctx, cancel, err := s.exchange(ctx)
	defer cancel()
	if err != nil {
		return "", err
	}
	last, err := strconv.ParseUint(cmp.Or(string(from), "0"), 10, 64)
	if err != nil {
		return "", distributed.Unavailable("natslock", err, distributed.ErrRefused)
	}
	// No try is repeated by the client: which of two has been carried out the sequence would not tell.
	ack, err := s.js.Publish(ctx, s.subject(key), data, jetstream.WithExpectLastSequencePerSubject(last), jetstream.WithMsgTTL(keep), jetstream.WithRetryAttempts(0))
	if err != nil {
		return "", s.failed(err)
	}
	return version(ack.Sequence), nil
}

// Watch implements register.Watcher. The server publishes what it has stored, to whoever listens. What comes while there is no connection is
// lost, so a watch ends then.
func (s *store) Watch(ctx context.Context, key string, tell func(register.Document)) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	broken := s.conn.StatusChanged(nats.RECONNECTING, nats.CLOSED)
	defer s.conn.RemoveStatusListener(broken)
	go func() { // ends with this call
		select {
		case <-broken:
			cancel()
		case <-ctx.Done():
		}
	}()
	changes, err := s.listen(key)
	if err != nil {
		return err
	}
	defer func() { _ = changes.Unsubscribe() }() // as above
	d, err := s.Get(ctx, key)                    // is sent after the subscription
	if err != nil {
		return err
	}
	for {
		tell(d)
		m, err := changes.NextMsgWithContext(ctx)
		if err != nil {
			return s.failed(err)
		}
		d = register.Document{Data: m.Data, Version: register.Version(m.Header.Get(jetstream.SequenceHeader))}
	}
}

// listen subscribes to the changes of a key.
func (s *store) listen(key string) (*nats.Subscription, error) {
	changes, err := s.conn.SubscribeSync(s.set.stream + changed + "." + token(key))
	if err != nil {
		return nil, s.failed(err)
	}
	return changes, nil
}

// List implements register.Lister. The cursor is the last key of the page before.
func (s *store) List(ctx context.Context, prefix, cursor string, limit int) (page []register.Keyed, next string, err error) {
	stream, ctx, cancel, err := s.exchange(ctx)
	defer cancel()
	if err != nil {
		return nil, "", err
	}
	info, err := stream.Info(ctx, jetstream.WithSubjectFilter(s.set.stream+".>"))
	if err != nil {
		return nil, "", s.failed(err)
	}
	var keys []string
	for subject := range maps.Keys(info.State.Subjects) {
		key, err := url.QueryUnescape(strings.TrimPrefix(subject, s.set.stream+"."))
		if err == nil && strings.HasPrefix(key, prefix) && key > cursor {
			keys = append(keys, key)
		}
	}
	slices.Sort(keys)
	if len(keys) > limit {
		keys, next = keys[:limit], keys[limit-1]
	}
	for _, key := range keys {
		d, err := s.Get(ctx, key)
		if err != nil {
			return nil, "", err
		}
		page = append(page, register.Keyed{Key: key, Document: d})
	}
	return page, next, nil
}

const (
	// wrongSequence, and inCluster with replicas, answer a write from a version that was replaced.
	wrongSequence jetstream.ErrorCode = 10071
	inCluster     jetstream.ErrorCode = 10164
)

// failed has the stream looked for again that is not there any more, and another connection made where an answer has not come.
func (s *store) failed(err error) error {
	if err = failed(err); errors.Is(err, distributed.ErrUnreached) {
		s.mu.Lock()
		s.stream = nil
		s.mu.Unlock()
	}
	if errors.Is(err, context.DeadlineExceeded) && s.own {
		_ = s.conn.ForceReconnect()
	}
	return err
}

// failed says what an error of the client's means to a caller.
func failed(err error) error {
	var api *jetstream.APIError
	isAPI := errors.As(err, &api)
	switch {
	case isAPI && (api.ErrorCode == wrongSequence || api.ErrorCode == inCluster):
		return register.ErrConflict
	case errors.Is(err, jetstream.ErrStreamNotFound), errors.Is(err, jetstream.ErrNoStreamResponse), errors.Is(err, nats.ErrNoResponders),
		errors.Is(err, nats.ErrReconnectBufExceeded), errors.Is(err, nats.ErrConnectionClosed), errors.Is(err, nats.ErrDisconnected):
		return distributed.Unavailable("natslock", err, distributed.ErrUnreached)
	case isAPI && api.Code < 500:
		return distributed.Unavailable("natslock", err, distributed.ErrRefused)
	}
	return distributed.Unavailable("natslock", err)
}
