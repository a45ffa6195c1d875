package doctor

import (
	"context"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/wllock/wllock/internal/openurl"
	"github.com/wllock/wllock/internal/redisopts"
)

// wordWait bounds the answer to a four-letter word.
const wordWait = 2 * time.Second

// zookeeper asks each server of the ensemble by its four-letter words, which need no log-in, and may be switched off.
func zookeeper(ctx context.Context, p *patient) {
	servers := openurl.WithPorts(p.url.Host, "2181")
	dial := new(net.Dialer).DialContext
	if p.url.Scheme == "zks" {
		files, _, err := openurl.Access(p.url, "zks")
		if err != nil {
			p.fail(Finding{Subject: "URL", What: err.Error()})
			return
		}
		dial = files.Dial
	}
	serving := 0
	for _, addr := range servers {
		p.where = addr
		text, err := fourLetters(ctx, dial, addr, "srvr")
		info := fieldsOf(text)
		switch {
		case err != nil:
			p.warn(Finding{
				Subject: "server", What: err.Error(), Means: "its clients move to others, as long as a majority serves", Mend: "start it, or take it out of WLLOCK_BACKEND",
			})
		case strings.Contains(text, "not in the whitelist"):
			p.warn(Finding{
				Subject: "server", What: "the word srvr is switched off", Means: "version and mode are not looked at", Mend: "4lw.commands.whitelist=srvr in zoo.cfg",
			})
			serving++
		case info["Mode"] == "":
			p.fail(Finding{
				Subject: "quorum", What: "it does not serve: it sees no majority", Means: "no lock can be acquired through it", Mend: "start the other servers",
			})
		default:
			serving++
			version, _, _ := strings.Cut(strings.TrimSpace(info["Zookeeper version"]), ",")
			p.fine("server", "ZooKeeper %s, %s, latency %s ms", version, strings.TrimSpace(info["Mode"]), strings.TrimSpace(info["Latency min/avg/max"]))
			p.single(strings.TrimSpace(info["Mode"]))
			p.nodes(strings.TrimSpace(info["Node count"]))
		}
	}
	p.where = ""
	p.judge(serving*2 <= len(servers), Error, Finding{
		Subject: "quorum", What: fmt.Sprintf("%d of %d servers serve", serving, len(servers)), Means: "without a majority no lock can be acquired",
		Mend: "start the servers that are away",
	})
}

func (p *patient) single(mode string) {
	if mode == "standalone" {
		p.warn(Finding{
			Subject: "quorum", What: "one server alone", Means: "while it is away no lock can be acquired, and with its disk all locks are lost",
			Mend: "three servers, or five",
		})
	}
}

// manyNodes is far above the keys that are in use within a minute, of most systems.
const manyNodes = 100_000

// nodes looks whether nodes of keys pile up: those of processes that end soon are left to the server.
func (p *patient) nodes(count string) {
	n, err := strconv.Atoi(count)
	if err != nil {
		return
	}
	p.judge(n > manyNodes, Warning, Finding{
		Subject: "nodes", What: fmt.Sprintf("%d nodes", n),
		Means: "each list reads all keys; a server deletes 167 empty containers per second at most, so those of processes that end soon may pile up",
		Mend:  "-Dznode.container.maxPerMinute (10000) of the servers above the keys that are used per minute",
	})
}

// fourLetters sends a word; the answer ends with the connection.
func fourLetters(ctx context.Context, dial redisopts.Dialer, addr, word string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, wordWait)
	defer cancel()
	conn, err := dial(ctx, "tcp", addr)
	if err != nil {
		return "", err
	}
	defer func() { _ = conn.Close() }()
	_ = conn.SetDeadline(time.Now().Add(wordWait))
	if _, err = io.WriteString(conn, word); err != nil {
		return "", err
	}
	text, err := io.ReadAll(conn)
	return string(text), err
}
