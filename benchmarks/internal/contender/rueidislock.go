package contender

import (
	"context"
	"time"

	"github.com/redis/rueidis"
	"github.com/redis/rueidis/rueidislock"
)

// rueidislocks are rueidislock with several time-outs of one try. It does not poll: the server tells it of a released
// key (client-side caching).
func rueidislocks() []Contender {
	best := newRueidislock("rueidislock", time.Second)
	best.Settings = "KeyMajority 1, NoLoopTracking, TryNextAfter 1 s (its default of 20 ms and 100 ms tried too)"
	variants := []Contender{
		newRueidislock("rueidislock-20ms", 20*time.Millisecond),
		newRueidislock("rueidislock-100ms", 100*time.Millisecond),
	}
	return append([]Contender{best}, asVariants(variants)...)
}

func newRueidislock(name string, tryNextAfter time.Duration) Contender {
	return Contender{
		Name:     name,
		Settings: "KeyMajority 1, NoLoopTracking, TryNextAfter " + tryNextAfter.String(),
		Module:   "github.com/redis/rueidis",
		Commands: []string{"evalsha", "eval", "hello", "client", "ping"},
		Open:     func(o Options) (Instance, error) { return openRueidislock(o, tryNextAfter) },
		Role:     Rival,
	}
}

type rueidisLock struct{ locker rueidislock.Locker }

func openRueidislock(o Options, tryNextAfter time.Duration) (Instance, error) {
	locker, err := rueidislock.NewLocker(rueidislock.LockerOption{
		ClientOption:   rueidis.ClientOption{InitAddress: []string{o.Addr}, ForceSingleClient: true},
		KeyValidity:    ttl,
		KeyMajority:    1,
		NoLoopTracking: true,
		TryNextAfter:   tryNextAfter,
	})
	if err != nil {
		return nil, err
	}
	return rueidisLock{locker: locker}, nil
}

func (l rueidisLock) Do(ctx context.Context, key string, f func(context.Context) error) error {
	held, release, err := l.locker.WithContext(ctx, key)
	if err != nil {
		return err
	}
	err = f(held)
	release() // waits for the answer
	return err
}

func (l rueidisLock) Close() error {
	l.locker.Close()
	return nil
}
