package wllock

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/internal/hold"
	"github.com/wllock/wllock/internal/report"
	"github.com/wllock/wllock/internal/tenure"
)

// Instance returns the id of the Locker, which the backend, logs, errors and the debug page show: the name of the host, or of WithInstance, and
// letters that no other process has. The id of a process's second Locker ends with a number.
func (l *Locker) Instance() string { return l.instance }

// Inspect asks the backend which instances hold a lock and wait for it. It is for people: the answer may be out of date when it is read. The
// error Is errors.ErrUnsupported if the backend cannot tell. distributed.InspectorOf(backend) can do more.
func (l *Locker) Inspect(ctx context.Context, name, key string) (distributed.Inspection, error) {
	if ctx == nil {
		return distributed.Inspection{}, l.mistake(errNilContext, name, key)
	}
	if err := report.Join(checkPart("name", name), checkKey(key)); err != nil {
		return distributed.Inspection{}, l.invalid(name, key, err)
	}
	i, ok := distributed.InspectorOf(l.backend)
	if !ok {
		return distributed.Inspection{}, fmt.Errorf("wllock: inspect: %w", errors.ErrUnsupported)
	}
	found, err := i.Inspect(ctx, l.names.system+":"+name+":"+key)
	if err != nil {
		return found, fmt.Errorf("wllock: inspect: %w", l.public(ctx, err))
	}
	return found, nil
}

// holderIn takes the holder out of an error.
func holderIn(err error) (holder string, rest error) {
	switch e := err.(type) { //nolint:errorlint // what a decorator has wrapped stays as it is
	case hold.Blocked:
		return instanceOf(e.By), e.Unwrap()
	case *distributed.HeldError:
		return instanceOf(e.Holder), ErrHeld
	}
	if e, ok := errors.AsType[*distributed.HeldError](err); ok {
		return instanceOf(e.Holder), err
	}
	return "", err
}

// instanceOf leaves the lane out of the name of a holder of permits: to the backend each lane is an instance (rule P3), to people
// the Locker is.
func instanceOf(holder string) string {
	if (distributed.Holder{Instance: holder}).Detached() {
		return "a detached lock"
	}
	before, after, ok := strings.Cut(holder, "#")
	if !ok {
		return holder
	}
	digits := strings.TrimLeft(after, "0123456789")
	return before + digits // and how many more there are
}

// holderOf names the holder of a key for a caller that did not get past the local queue; "" if it is not known.
func (l *Locker) holderOf(key string) string {
	var before, now [4]*tenure.Tenure // most keys have one lane, and callers that are shed come fast
	all := l.queue.Batons(before[:0], key)
	holder := ""
	for _, t := range all {
		if holder = t.Holder(); holder != "" {
			break
		}
	}
	if !slices.Equal(l.queue.Batons(now[:0], key), all) { // perhaps one became another key's before we asked it
		return ""
	}
	return instanceOf(holder)
}
