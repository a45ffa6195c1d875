package outage_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock/internal/outage"
)

// Locks that are lost and releases that get no answer share lines during an outage and shortly after it; the first losses
// have their own. Later ones have nothing to do with it.
func TestConsequencesShareLines(t *testing.T) {
	log, b := new(strings.Builder), newObservable(after(time.Millisecond))
	c := outage.Config{Backend: b, System: "test", TTL: time.Second, Logger: logTo(log)}
	judgedWith(t, "", c, func(t *testing.T, p *outage.Breaker) {
		require.NoError(t, enter(p, time.Second))
		require.False(t, p.Unreleased())
		require.False(t, p.Lost())
		b.does(unreached)
		_ = enter(p, time.Second)
		time.Sleep(time.Second)
		own := 0
		consequences := func() {
			for range 500 {
				if !p.Lost() {
					own++
				}
				require.True(t, p.Unreleased())
			}
		}
		consequences()
		b.does(after(time.Millisecond))
		time.Sleep(time.Second)
		consequences() // they come late
		require.LessOrEqual(t, own, 6)
		time.Sleep(5 * time.Second)
		synctest.Wait()
		require.Equal(t, 2, strings.Count(log.String(), "not_released=500 lost=500"), log.String())
		require.Equal(t, 3, strings.Count(log.String(), "\n"))
		require.False(t, p.Unreleased())
		require.False(t, p.Lost())
	})
}

// The answers that end an outage may say that leases were lost: they are here before the line about its end is.
func TestConsequencesThatEndTheOutageShareItsLine(t *testing.T) {
	log, b := new(strings.Builder), newObservable(unreached)
	c := outage.Config{Backend: b, System: "test", TTL: time.Second, Logger: logTo(log)}
	judgedWith(t, "", c, func(t *testing.T, p *outage.Breaker) {
		_ = enter(p, time.Second)
		time.Sleep(time.Second)
		b.does(up)
		b.report(time.Now(), nil)
		own := 0
		for range 500 {
			if !p.Lost() {
				own++
			}
		}
		require.LessOrEqual(t, own, 6, "the line about the end may come between them")
		time.Sleep(5 * time.Second)
		synctest.Wait()
		require.LessOrEqual(t, strings.Count(log.String(), "\n"), 3, log.String())
	})
}

// An outage of an hour is a line at its beginning, one at its end, and one a minute; LocalOnly adds one when locks become
// local. They name the cause and say how many were refused.
func TestLogLinesOfAnOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, name := range []string{"closed", "local"} {
			var log strings.Builder
			b := newObservable(after(time.Millisecond))
			p := policies(t, b, time.Second, logTo(&log))[name]
			require.NoError(t, enter(p, time.Second))
			log.Reset()
			b.does(unreached)
			for range 1000 {
				_ = enter(p, 10*time.Millisecond)
				time.Sleep(90 * time.Millisecond)
			}
			b.does(after(time.Millisecond))
			time.Sleep(2 * time.Second)
			synctest.Wait()
			lines := strings.Split(strings.TrimSpace(log.String()), "\n")
			require.LessOrEqual(t, len(lines), 8, "of both")
			require.Contains(t, log.String(), "dial")
			require.Contains(t, log.String(), "system=test")
			require.Contains(t, log.String(), "level=INFO msg=\"backend is back\"")
		}
	})
}
