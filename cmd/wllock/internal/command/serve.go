package command

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"log"
	"net"
	"net/http"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/urfave/cli/v3"

	"github.com/wllock/wllock/cmd/wllock/internal/fleet"
	"github.com/wllock/wllock/cmd/wllock/internal/live"
	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/internal/passfile"
	"github.com/wllock/wllock/internal/tlsfile"
)

const (
	// ownAddress is reached from this machine alone. The port is LOCK on the keys of a telephone.
	ownAddress = "127.0.0.1:5625"
	// headerTime bounds a client that sends slowly, and exchangeTime one that reads slowly.
	headerTime, exchangeTime = 5 * time.Second, 30 * time.Second
	// longestRequest is enough for a filter.
	longestRequest = 16 << 10
	// lastAnswers is how long answers may take that are under way at the end.
	lastAnswers = time.Second
)

const serveDescription = `A page for browsers, a table for terminals (curl) and JSON for programs (?format=json): who holds and who waits, the longest
queues first, how the latest runs of jobs ended, and whether the backend answers. ?prefix=shop:order and ?filter=REGEXP
choose locks by their full names as they are printed. The page changes nothing. It reads at the pace of top, once for
all viewers, and only while there are any. In an outage it keeps the last list and says how old that is.

It asks for no password. On another address than a loopback one it needs --tls-cert and --tls-key, and then
--tls-client-ca has it admit only clients with a certificate of these authorities. --plain does without TLS: it is for a
proxy with a login, if nothing else reaches the port.`

func (a *app) serve() *cli.Command {
	return &cli.Command{
		Name: "serve", Usage: "show the locks of all processes, and their jobs, on a page", ArgsUsage: "[SYSTEM[:NAME]]", Description: serveDescription,
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "listen", Value: ownAddress, Usage: "at this `ADDRESS:PORT`"},
			&cli.StringFlag{Name: "tls-cert", Usage: "PEM `FILE` of the page's certificate, read for each connection"},
			&cli.StringFlag{Name: "tls-key", Usage: "PEM `FILE` of its key"},
			&cli.StringFlag{Name: "tls-client-ca", Usage: "PEM `FILE` of the authorities whose clients are admitted"},
			&cli.BoolFlag{Name: "plain", Usage: "without TLS, although other machines reach the address"},
			&cli.DurationFlag{Name: "interval", Value: 2 * time.Second, Usage: "between two looks at the locks"},
			showKeysFlag,
		},
		Action: a.serveAction,
	}
}

func (a *app) serveAction(ctx context.Context, c *cli.Command) error {
	prefix, system, err := a.prefix(c)
	if err != nil {
		return err
	}
	if err := checkInterval(c); err != nil {
		return err
	}
	settings, err := a.settings(c, system)
	if err != nil {
		return err
	}
	listener, secure, err := listen(c)
	if err != nil {
		return err
	}
	defer func() { _ = listener.Close() }()
	return a.withBackend(ctx, c, reading(settings), func(ctx context.Context, b distributed.Backend) error {
		i, err := a.inspectorOf(c, settings, b)
		if err != nil {
			return err
		}
		var runs func(context.Context) ([]distributed.Runs, error)
		if r, able := distributed.RecorderOf(b); able {
			runs = func(ctx context.Context) ([]distributed.Runs, error) { return a.runs(ctx, c, r, prefix) }
		}
		watch := live.NewWatch(i, live.Options{Prefix: prefix, Shown: a.shown, Interval: c.Duration("interval")}, runs)
		return a.servePage(ctx, listener, secure, watch, prefix)
	})
}

// servePage serves until a signal, or the end of ctx.
func (a *app) servePage(ctx context.Context, listener net.Listener, secure *tls.Config, watch *live.Watch, prefix string) error {
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGTERM, syscall.SIGINT)
	server := &http.Server{
		Handler: fleet.Handler(watch, prefix), TLSConfig: secure, ReadHeaderTimeout: headerTime, ReadTimeout: exchangeTime, WriteTimeout: exchangeTime,
		IdleTimeout: time.Minute, MaxHeaderBytes: longestRequest, ErrorLog: log.New(teller{a}, "", 0),
		BaseContext: func(net.Listener) context.Context { return ctx },
	}
	var all sync.WaitGroup
	defer all.Wait()
	defer stop()
	all.Go(func() { watch.Run(ctx) })
	all.Go(func() {
		<-ctx.Done()
		last, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastAnswers)
		defer cancel()
		_ = server.Shutdown(last)
		_ = server.Close()
	})
	scheme, serve := "http", func() error { return server.Serve(listener) }
	if secure != nil {
		scheme, serve = "https", func() error { return server.ServeTLS(listener, "", "") }
	}
	a.say("the page is at %s://%s/", scheme, listener.Addr())
	if err := serve(); ctx.Err() == nil {
		return &exit{unavailable, err}
	}
	return nil
}

// teller says what is written to it.
type teller struct{ *app }

func (t teller) Write(text []byte) (int, error) {
	t.say("%s", bytes.TrimSpace(text))
	return len(text), nil
}

// listen listens at the address of the flags, if that is safe. secure is nil without TLS.
func listen(c *cli.Command) (l net.Listener, secure *tls.Config, err error) {
	text := c.String("listen")
	addr, err := net.ResolveTCPAddr("tcp", text)
	if err != nil {
		return nil, nil, usageError("--listen: %w: want ADDRESS:PORT, as %s", err, ownAddress)
	}
	if secure, err = serverTLS(c.String("tls-cert"), c.String("tls-key"), c.String("tls-client-ca")); err != nil {
		return nil, nil, err
	}
	switch {
	case secure != nil && c.Bool("plain"):
		return nil, nil, usageError("--plain and --tls-cert exclude each other")
	case secure == nil && !c.Bool("plain") && !addr.IP.IsLoopback():
		return nil, nil, usageError("--listen %q: other machines reach it. Give --tls-cert and --tls-key, or --plain if they are kept away by other means", text)
	}
	if l, err = net.ListenTCP("tcp", addr); err != nil {
		return nil, nil, usageError("--listen: %w", err)
	}
	return l, secure, nil
}

// serverTLS reads the files, to find out at once what is wrong with them. It returns nil if there are none.
func serverTLS(cert, key, clients string) (*tls.Config, error) {
	if cert == "" && key == "" && clients == "" {
		return nil, nil
	}
	if cert == "" || key == "" {
		return nil, usageError("--tls-cert and --tls-key need each other, and --tls-client-ca needs both")
	}
	if _, err := tlsfile.Pair(cert, key); err != nil {
		return nil, usageError("--tls-cert %q and --tls-key %q: %w", cert, key, err)
	}
	secure := &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
		pair, err := tlsfile.Pair(cert, key) // it may have been renewed
		return &pair, err
	}}
	if clients != "" {
		text, err := passfile.Content(clients)
		if err != nil {
			return nil, usageError("--tls-client-ca: %w", err)
		}
		secure.ClientCAs, secure.ClientAuth = x509.NewCertPool(), tls.RequireAndVerifyClientCert
		if !secure.ClientCAs.AppendCertsFromPEM(text) {
			return nil, usageError("--tls-client-ca: no certificate in PEM form in %q", clients)
		}
	}
	return secure, nil
}
