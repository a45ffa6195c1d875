package etcdlock

import (
	"context"
	"errors"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/distributed/driver"
	"github.com/wllock/wllock/internal/keyless"
)

// ErrInvalidTTL says that a lease TTL is shorter than the shortest etcd lease that the server grants, so that a crashed holder would keep the
// lock for longer than the TTL. An error that Is ErrInvalidTTL Is also distributed.ErrRefused and ErrUnavailable.
var ErrInvalidTTL = keyless.Errorf("etcdlock: lease TTL shorter than that of an etcd lease")

// errOver says that the session of a request has ended. Nothing of the request is left.
var errOver = keyless.Errorf("etcdlock: the etcd lease has expired: %w", driver.ErrOver)

// errUnknown stands beside an error after which the request may have been carried out or not, or may be later: etcd can
// commit a proposal long after its client has given up, when a quorum is back.
var errUnknown = keyless.Errorf("outcome unknown")

// explain wraps the error of an exchange. unsent: no connection was found for it.
func explain(ctx context.Context, what string, err error, unsent bool) error {
	switch {
	case err == nil:
		return nil
	case unsent && ctx.Err() == nil:
		return distributed.Unavailable("etcdlock: "+what, coded(err), distributed.ErrUnreached)
	case unsent:
		return unreached(ctx.Err())
	case ctx.Err() != nil:
		return distributed.Unavailable("etcdlock: "+what, ctx.Err(), errUnknown)
	case isLearner(err):
		return refusal(what, err)
	}
	switch codeOf(err) {
	case codes.NotFound: // the only thing that we name and that can be missing is the etcd lease
		return errOver
	case codes.Unavailable, codes.DeadlineExceeded, codes.Canceled, codes.Unknown, codes.Internal, codes.Aborted:
		return distributed.Unavailable("etcdlock: "+what, coded(err), errUnknown)
	}
	return refusal(what, err)
}

// coded returns an error of the client with what of it holds no key: its code, or all if it is one of those that have one text.
func coded(err error) error {
	if _, safe := keyless.Text(err); safe { // the end of a context
		return err
	}
	text := codeOf(err).String()
	if _, constant := errors.AsType[rpctypes.EtcdError](rpctypes.Error(err)); constant {
		text = err.Error()
	}
	return keyless.Known(err, text)
}

// cannotServe reports that a member has done nothing, since it is a learner, has no leader, is far behind the others, or has just been
// started: another one may serve.
func cannotServe(err error) bool {
	if err == nil {
		return false
	}
	switch rpctypes.ErrorDesc(err) {
	case rpctypes.ErrorDesc(rpctypes.ErrGRPCNoLeader), rpctypes.ErrorDesc(rpctypes.ErrGRPCRequestTooManyRequests),
		rpctypes.ErrorDesc(rpctypes.ErrGRPCNotCapable):
		return true
	}
	return isLearner(err)
}

// isLearner reports that a member is one. It says so with a code that depends on its version.
func isLearner(err error) bool {
	return err != nil && rpctypes.ErrorDesc(err) == rpctypes.ErrorDesc(rpctypes.ErrGRPCNotSupportedForLearner)
}

// refusal says in plain words what an operator has to mend.
func refusal(what string, err error) error {
	hint := ""
	switch rpctypes.ErrorDesc(err) {
	case rpctypes.ErrorDesc(rpctypes.ErrGRPCNoSpace):
		hint = "the database is full (alarm NOSPACE): compact, defragment and disarm it: "
	case rpctypes.ErrorDesc(rpctypes.ErrGRPCPermissionDenied):
		hint = "the user lacks the right to read and write below the prefix: "
	case rpctypes.ErrorDesc(rpctypes.ErrGRPCNotSupportedForLearner):
		hint = "all members that answer are learners: name those with a vote: "
	case rpctypes.ErrorDesc(rpctypes.ErrGRPCRequestTooManyRequests):
		hint = "all members that answer carry out less than they are asked: "
	case rpctypes.ErrorDesc(rpctypes.ErrGRPCUserEmpty):
		hint = "authentication is on, and the client has no user: "
	}
	return distributed.Unavailable("etcdlock: "+what, keyless.Errorf("%s%w", hint, coded(err)), distributed.ErrRefused)
}

// unanswered wraps the end of a caller's time.
func unanswered(what string, err error) error {
	return distributed.Unavailable("etcdlock: "+what, err)
}

// loginError wraps what the client has returned instead of itself.
func loginError(err error) error {
	code := codeOf(err)
	if code == codes.Unavailable || code == codes.DeadlineExceeded || errors.Is(err, context.DeadlineExceeded) {
		return unreached(err)
	}
	return refusal("log in", err)
}

// codeOf returns the code of an error: also of one that the client has translated, as it does with those of a log-in.
func codeOf(err error) codes.Code {
	if known, ok := errors.AsType[rpctypes.EtcdError](err); ok {
		return known.Code()
	}
	return status.Code(err)
}

// unreached wraps the end of a caller's time when nothing was sent.
func unreached(err error) error {
	return distributed.Unavailable("etcdlock", coded(err), distributed.ErrUnreached)
}

// isUnknown reports that a request may have been carried out.
func isUnknown(err error) bool { return errors.Is(err, errUnknown) }

// observe reports an exchange.
func (b *Backend) observe(sent time.Time, err error) {
	if errors.Is(err, driver.ErrOver) {
		err = nil
	}
	b.engine.Exchanged(sent, err)
}
