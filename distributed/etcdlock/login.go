package etcdlock

import (
	"context"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/wllock/wllock/distributed"
)

// login is one under way, for all that ask meanwhile: a server takes a tenth of a second for each.
type login struct {
	done   chan struct{} // closed when it has ended
	cancel context.CancelFunc
	token  string
	err    error
}

// intercept answers the client's requests for a token. The client sends the token that it has with every request, also with these, and a
// server refuses a log-in with a token that has become invalid: a client would never get another. So they go over a connection of their
// own, which has none.
func (d *dialer) intercept(
	ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, next grpc.UnaryInvoker, opts ...grpc.CallOption,
) error {
	got, is := reply.(*pb.AuthenticateResponse)
	if !is {
		return next(ctx, method, req, reply, cc, opts...)
	}
	l := d.login()
	select {
	case <-l.done:
		got.Token = l.token
		return l.err
	case <-ctx.Done(): // the log-in goes on for the next try
		return status.FromContextError(ctx.Err()).Err()
	}
}

// login returns the log-in under way, or begins one.
func (d *dialer) login() *login {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.logging != nil {
		return d.logging
	}
	l := &login{done: make(chan struct{}), err: distributed.ErrClosed}
	if d.closed {
		close(l.done)
		return l
	}
	var ctx context.Context
	ctx, l.cancel = context.WithTimeout(context.Background(), loginTimeout)
	d.logging = l
	d.logins.Go(func() {
		defer l.cancel()
		l.token, l.err = d.logIn(ctx)
		d.mu.Lock()
		d.logging = nil
		d.mu.Unlock()
		close(l.done)
	})
	return l
}

// logIn asks for a token, with the password of now.
func (d *dialer) logIn(ctx context.Context) (string, error) {
	cfg, err := d.config()
	if err != nil {
		return "", status.Error(codes.Unauthenticated, err.Error())
	}
	req := &pb.AuthenticateRequest{Name: cfg.Username, Password: cfg.Password}
	cfg.Username, cfg.Password = "", ""
	client, err := clientv3.New(cfg)
	if err != nil {
		return "", err
	}
	defer func() { _ = client.Close() }()
	got, err := pb.NewAuthClient(client.ActiveConnection()).Authenticate(ctx, req)
	return got.GetToken(), err
}
