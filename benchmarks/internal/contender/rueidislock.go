package contender

import (
	"context"
	"time"

	"github.com/redis/rueidis"
	"github.com/redis/rueidis/rueidislock"
)

// rueidislocks are rueidislock with several time-outs of one try; its default is 20 ms. It does not poll: the server notifies
// it of a released key (client-side caching).
func rueidislocks() []Contender {
	var all []Contender
	for _, after := range []time.Duration{time.Second, 100 * time.Millisecond, 20 * time.Millisecond} {
		all = append(all, Contender{
			Name:     "rueidislock-" + after.String(),
			Settings: "KeyMajority 1, NoLoopTracking, TryNextAfter " + after.String(),
			Setting:  after.String(),
			Module:   "github.com/redis/rueidis",
			Commands: []string{"evalsha", "eval", "hello", "client", "ping"},
			Open:     func(o Options) (Instance, error) { return openRueidislock(o, after) },
			Role:     Rival,
		})
	}
	return tuned("rueidislock", "KeyMajority 1, NoLoopTracking, TryNextAfter the best of 20 ms, 100 ms and 1 s", all...)
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
