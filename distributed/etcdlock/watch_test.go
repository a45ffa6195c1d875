package etcdlock

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/internal/etcdtest"
)

// A holder behind etcd's own proxy, which gives watches ids of its own and answers no request for progress, learns at once that its lease was
// broken, and a waiter that its turn has come.
func TestWatchesThroughTheProxyOfEtcd(t *testing.T) {
	t.Parallel()
	server, prefix := etcdtest.Shared(t), newPrefix()
	b, direct := open(t, etcdtest.StartProxy(t, server).Addr, prefix), open(t, server.Addr, prefix)
	asker(t, b, "other").Lease("a", lasting(long)) // whose watch is set, too
	for range 3 {
		held := asker(t, b, "k").Lease("a", lasting(long))
		require.Eventually(t, func() bool { return b.watches.confirmed() == 2 }, patience, time.Millisecond)
		breaks(t, direct, "k")
		lost(t, held) // by a watch: T/3 are minutes
		held = asker(t, b, "k").Lease("a", lasting(long))
		next := asker(t, b, "k").Place("b", lasting(long))
		require.Eventually(t, held.Contended, patience, time.Millisecond)
		release(t, held)
		release(t, granted(t, next))
	}
	require.Eventually(t, func() bool {
		stream, heard := b.watches.streams.Load(), b.watches.heard.Load()
		time.Sleep(2 * streamBeat)
		return b.watches.heard.Load() > heard && b.watches.streams.Load() == stream
	}, patience, time.Millisecond, "a stream gives signs of life")
}

// confirmed returns how many watches there are, if all are confirmed.
func (ws *watches) confirmed() int {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	for _, w := range ws.all {
		if !w.confirmed {
			return 0
		}
	}
	return len(ws.all)
}

// A proxy counts the watches of a stream as they come: so they go out in the order of their ids, also beside one that asks for a sign of life.
func TestWatchesGoOutInTheOrderOfTheirIDs(t *testing.T) {
	ws := new(watches)
	for range 3 {
		ws.add(nil, 1, &pb.WatchCreateRequest{Key: []byte("k")})
		ws.askForSign(true)
	}
	next := int64(0)
	for _, req := range ws.take() {
		if create := req.GetCreateRequest(); create != nil {
			require.Equal(t, next, create.WatchId)
			next++
		}
	}
	require.EqualValues(t, 6, next)
}

func breaks(t *testing.T, b *Backend, key string) {
	t.Helper()
	found, err := b.Inspect(t.Context(), key)
	require.NoError(t, err)
	_, err = b.Break(t.Context(), found, "me", "a test")
	require.NoError(t, err)
}

// Whatever becomes of the answers about watches, a holder learns by a look that its lease was broken.
func TestWatchesThatNobodyConfirms(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*pb.WatchResponse) []*pb.WatchResponse{
		"swallowed": func(*pb.WatchResponse) []*pb.WatchResponse { return nil },
		"late": func(r *pb.WatchResponse) []*pb.WatchResponse {
			if r.Created && r.WatchId < 2 {
				time.Sleep(2 * streamBeat)
			}
			return []*pb.WatchResponse{r}
		},
		"twice": func(r *pb.WatchResponse) []*pb.WatchResponse { return []*pb.WatchResponse{r, r} },
		"with other ids": func(r *pb.WatchResponse) []*pb.WatchResponse {
			r.WatchId += 1000
			return []*pb.WatchResponse{r}
		},
		"mixed up": func(r *pb.WatchResponse) []*pb.WatchResponse {
			r.WatchId ^= 1
			return []*pb.WatchResponse{r}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server, prefix := etcdtest.Shared(t), newPrefix()
			b := through(t, server.Addr, prefix, grpc.WithChainStreamInterceptor(changed(change)))
			direct := open(t, server.Addr, prefix)
			const term = 3 * ttl
			one, other := asker(t, b, "k1").Lease("a", lasting(term)), asker(t, b, "k2").Lease("a", lasting(term))
			time.Sleep(silentBeats * streamBeat) // watches are set, and confirmed, or not
			for key, l := range map[string]distributed.Lease{"k1": one, "k2": other} {
				breaks(t, direct, key)
				lost(t, l) // a holder that does not look never learns it
			}
		})
	}
}

// changed has what comes of a stream of watches changed.
func changed(change func(*pb.WatchResponse) []*pb.WatchResponse) grpc.StreamClientInterceptor {
	return func(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, streamer grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
		s, err := streamer(ctx, desc, cc, method, opts...)
		if err != nil || method != "/etcdserverpb.Watch/Watch" {
			return s, err
		}
		return &changedStream{ClientStream: s, change: change}, nil
	}
}

type changedStream struct {
	grpc.ClientStream
	change func(*pb.WatchResponse) []*pb.WatchResponse
	rest   []*pb.WatchResponse
}

func (s *changedStream) RecvMsg(m any) error {
	for len(s.rest) == 0 {
		if err := s.ClientStream.RecvMsg(m); err != nil {
			return err
		}
		one := new(pb.WatchResponse)
		assign(one, m.(*pb.WatchResponse))
		s.rest = s.change(one)
	}
	assign(m.(*pb.WatchResponse), s.rest[0])
	s.rest = s.rest[1:]
	return nil
}

func assign(to, from *pb.WatchResponse) {
	to.Header, to.WatchId, to.Created, to.Canceled = from.Header, from.WatchId, from.Created, from.Canceled
	to.CompactRevision, to.CancelReason, to.Events = from.CompactRevision, from.CancelReason, from.Events
}
