package zklock

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/distributed/driver"
	"github.com/wllock/wllock/internal/keyless"
)

// ErrInvalidTTL says that a lease TTL is shorter than the timeout that the server grants to a session, so that a crashed holder would keep the
// lock for longer than the TTL. An error that Is ErrInvalidTTL Is also distributed.ErrRefused and ErrUnavailable.
var ErrInvalidTTL = keyless.Errorf("zklock: lease TTL shorter than the session timeout")

// errOver says that the session of a request has ended.
var errOver = keyless.Errorf("zklock: %w", driver.ErrOver)

// explain wraps the error of a call that was answered, or ended with its connection. Answers about nodes stay what they are.
func explain(what string, err error) error {
	if err == nil || isAnswer(err) {
		return err
	}
	err = constant(err)
	switch {
	case errors.Is(err, zk.ErrNoServer):
		return distributed.Unavailable("zklock: "+what, err, distributed.ErrUnreached)
	case isInterruption(err):
		return distributed.Unavailable("zklock: "+what, err)
	}
	return refusal(what, err)
}

// constant returns an error of the library with its text, if it is one of those that have one text.
func constant(err error) error {
	if isOneOf(err, zk.ErrNoAuth, zk.ErrAuthFailed, zk.ErrInvalidACL, zk.ErrNoServer, zk.ErrConnectionClosed, zk.ErrSessionExpired, zk.ErrSessionMoved,
		zk.ErrClosing, zk.ErrBadArguments, zk.ErrAPIError, zk.ErrNothing, zk.ErrInvalidPath) && errors.Unwrap(err) == nil {
		return keyless.Known(err, err.Error())
	}
	return err
}

func refusal(what string, err error) error {
	if strings.HasSuffix(err.Error(), ": -125") { // which the library does not know
		err = keyless.Errorf("the quota of a node above is used up (setquota): %w", err)
	}
	return distributed.Unavailable("zklock: "+what, err, distributed.ErrRefused)
}

// lacks is explain for a request that takes rights below a node.
func lacks(what, dir string, err error) error {
	if errors.Is(err, zk.ErrNoAuth) { // the path has the key
		const why = "the user lacks the rights to create and delete nodes there (ACL cd)"
		return refusal(what, keyless.Known(fmt.Errorf("below %.200q: %s: %w", dir, why, err), why+": "+zk.ErrNoAuth.Error()))
	}
	return explain(what, err)
}

// unanswered wraps the end of a caller's time.
func unanswered(what string, err error) error {
	return distributed.Unavailable("zklock: "+what, err)
}

// unreached wraps the end of a caller's time when nothing was sent.
func unreached(err error) error {
	return distributed.Unavailable("zklock", err, distributed.ErrUnreached)
}

// isAnswer reports that the server has answered a question about nodes.
func isAnswer(err error) bool {
	return isOneOf(err, zk.ErrNoNode, zk.ErrNodeExists, zk.ErrNotEmpty, zk.ErrBadVersion)
}

// isInterruption reports that the connection or the session ended before the answer: the request may have been carried out
// or not.
func isInterruption(err error) bool {
	return isOneOf(err, zk.ErrConnectionClosed, zk.ErrNoServer, zk.ErrSessionMoved, zk.ErrSessionExpired, zk.ErrClosing)
}

func isOneOf(err error, all ...error) bool {
	return slices.ContainsFunc(all, func(one error) bool { return errors.Is(err, one) })
}

// observe reports an exchange.
func (b *Backend) observe(sent time.Time, err error) {
	if err = explain("request", err); isAnswer(err) {
		err = nil
	}
	b.engine.Exchanged(sent, err)
}
